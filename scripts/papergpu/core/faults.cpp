// How a finding ends a launch: it is thrown, and says in words what happened.
#include "running.hpp"
#include <cstdarg>

namespace {

thread_local int faulty_lane = -1;

}  // namespace

int take_faulty_lane() {
    const int lane = faulty_lane;
    faulty_lane = -1;
    return lane;
}

void fault(const char* format, ...) {
    char text[800];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    throw Fault(text);
}

void fault_lane(int lane, const char* format, ...) {
    char text[800];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    faulty_lane = lane;
    throw Fault(text);
}
