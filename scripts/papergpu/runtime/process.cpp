// The other process: who it is, how it is asked, and the memory that both share.
#include "runtime.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

std::recursive_mutex lock;
int channel = -1, memory = -1;  // the socket, and the file that device memory is
std::vector<u64> told;

[[noreturn]] void give_up(const char* what) {
    fprintf(stderr, "papergpu: %s\n", what);
    _exit(2);
}

void send_all(const void* data, size_t size) {
    for (const char* at = (const char*)data; size;) {
        const ssize_t n = send(channel, at, size, MSG_NOSIGNAL);
        if (n <= 0) give_up("the process that executes kernels has ended");
        at += n, size -= n;
    }
}
void receive_all(void* data, size_t size) {
    for (char* at = (char*)data; size;) {
        const ssize_t n = recv(channel, at, size, 0);
        if (n <= 0) give_up("the process that executes kernels has ended");
        at += n, size -= n;
    }
}

// Memory at an address that both processes know: a file without a name.
int map_shared(u64 at) {
    const int file = memfd_create("papergpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, SIZE)) give_up("no shared memory: memfd_create failed");
    void* got = mmap((void*)at, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);
    if (got != (void*)at) give_up("its addresses are taken: run the program without a sanitizer of its own");
    return file;
}

// A process that executes kernels for this one, and ends with it.
void start_server() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) give_up("no sockets");
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    if (!fork()) {
        setsid();  // a signal for the program's group is not for it
        const char* before = getenv("PYTHONPATH");
        setenv("PYTHONPATH", (std::string(PAPERGPU_HOME) + (before ? std::string(":") + before : "")).c_str(), 1);
        unsetenv("LD_PRELOAD");
        execl(PAPERGPU_PYTHON, PAPERGPU_PYTHON, "-m", "papergpu", "serve", std::to_string(ends[1]).c_str(), nullptr);
        give_up("cannot start " PAPERGPU_PYTHON);
    }
    close(ends[1]);
    channel = ends[0];
}

void begin() {
    if (channel >= 0) return;
    const int files[2] = {map_shared(BASE), map_shared(SHADOW)};
    start_server();
    char control[CMSG_SPACE(sizeof files)] = {};
    u64 head[2] = {HELLO, 0};
    iovec text{head, sizeof head};
    msghdr message{};
    message.msg_iov = &text, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
    cmsghdr* with = CMSG_FIRSTHDR(&message);
    with->cmsg_level = SOL_SOCKET, with->cmsg_type = SCM_RIGHTS, with->cmsg_len = CMSG_LEN(sizeof files);
    memcpy(CMSG_DATA(with), files, sizeof files);
    if (sendmsg(channel, &message, MSG_NOSIGNAL) != sizeof head) give_up("no answer");
    memory = files[0];
    close(files[1]);
    if (!mirror(own((void*)BASE), (void*)BASE, SIZE)) give_up("no room for device memory");
    guard_memory();
    u64 answer[2];
    receive_all(answer, sizeof answer);
    told.resize(answer[1]);
    receive_all(told.data(), answer[1] * 8);
    // When the program ends, the server has said all that it has to say.
    atexit([] {
        fflush(nullptr);
        shutdown(channel, SHUT_WR);
        u64 status = 0;
        if (recv(channel, &status, sizeof status, MSG_WAITALL) == sizeof status && status) _exit(int(status));
    });
}

}  // namespace

Answer ask(Kind kind, const Message& message) {
    std::lock_guard hold(lock);
    begin();
    fflush(nullptr);  // what the program printed comes before what the kernel does
    tell(kind, message);
    u64 head[2];
    receive_all(head, sizeof head);
    Answer answer{cudaError_t(head[0]), std::vector<u64>(head[1])};
    receive_all(answer.numbers.data(), head[1] * 8);
    return answer;
}

void tell(Kind kind, const Message& message) {
    std::lock_guard hold(lock);
    begin();
    const u64 head[2] = {kind, message.bytes.size()};
    send_all(head, sizeof head);
    send_all(message.bytes.data(), message.bytes.size());
}

const std::vector<u64>& machine() {
    std::lock_guard hold(lock);
    begin();
    return told;
}

bool mirror(void* at, void* of, size_t size) {
    return mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memory, off_t(u64(of) - BASE)) == at;
}

static void tell_wrong(const char* format, va_list more) {
    char text[1024];
    vsnprintf(text, sizeof text, format, more);
    fflush(nullptr);
    tell(WRONG, Message().text(text));
}
void complain(const char* format, ...) {
    va_list more;
    va_start(more, format);
    tell_wrong(format, more);
    va_end(more);
}
cudaError_t wrong(const char* format, ...) {
    va_list more;
    va_start(more, format);
    tell_wrong(format, more);
    va_end(more);
    return keep(cudaErrorInvalidValue);
}

// ---- errors

namespace {
thread_local cudaError_t last = cudaSuccess;
cudaError_t for_good = cudaSuccess;
struct Known {
    cudaError_t error;
    const char *name, *text;
};
#define KNOWN(name, text) {name, #name, text}
const Known known[] = {
    KNOWN(cudaSuccess, "no error"),
    KNOWN(cudaErrorInvalidValue, "invalid argument"),
    KNOWN(cudaErrorMemoryAllocation, "out of memory"),
    KNOWN(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    KNOWN(cudaErrorInvalidSymbol, "invalid device symbol"),
    KNOWN(cudaErrorInvalidDevice, "invalid device ordinal"),
    KNOWN(cudaErrorInvalidDeviceFunction, "invalid device function"),
    KNOWN(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    KNOWN(cudaErrorNotReady, "device not ready"),
    KNOWN(cudaErrorNotSupported, "operation not supported"),
    KNOWN(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    KNOWN(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    KNOWN(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    KNOWN(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    KNOWN(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    KNOWN(cudaErrorLaunchFailure, "unspecified launch failure"),
};
const Known& describe(cudaError_t error) {
    for (const Known& one : known)
        if (one.error == error) return one;
    static const Known other{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
    return other;
}
}  // namespace

cudaError_t keep(cudaError_t error, bool sticky) {
    if (sticky) for_good = error;
    if (for_good) error = for_good;
    if (error) last = error;
    return error;
}
cudaError_t cudaGetLastError() {
    const cudaError_t found = for_good ? for_good : last;
    last = cudaSuccess;
    return found;
}
cudaError_t cudaPeekAtLastError() { return for_good ? for_good : last; }
const char* cudaGetErrorString(cudaError_t error) { return describe(error).text; }
const char* cudaGetErrorName(cudaError_t error) { return describe(error).name; }
