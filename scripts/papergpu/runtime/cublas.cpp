// cuBLAS: products are multiplied by numpy in the other process, on vectors it is a loop here.
#include "cublasLt.h"
#include "runtime.hpp"

#include <cmath>

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
};
struct cublasLtDesc {
    cublasComputeType_t compute;
    cudaDataType scale;
    int transposed[2] = {}, epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
};
struct cublasLtLayout {
    cudaDataType type;
    u64 rows, columns;
    long long ld;
};

namespace {

const auto FINE = CUBLAS_STATUS_SUCCESS;
cublasStatus_t status(cudaError_t error) { return error ? CUBLAS_STATUS_INVALID_VALUE : FINE; }

// A matrix by columns: `ld` elements from one to the next, `stride` from one of the batch to the next.
struct Matrix {
    const void* at;
    cudaDataType type;
    long long ld, stride;
    int transposed;
    Message& tell(Message& to) const { return to.number(u64(at)).number(type).number(ld).number(stride).number(transposed); }
};
// alpha and beta, which a handle may have on the device: they are read when the product is made.
struct Scale {
    cublasComputeType_t compute;
    const void *alpha, *beta;
    double of(const void* at) const {
        at = own(at);
        switch (compute) {
        case CUBLAS_COMPUTE_16F: case CUBLAS_COMPUTE_16F_PEDANTIC: return __half2float(*(const __half*)at);
        case CUBLAS_COMPUTE_64F: case CUBLAS_COMPUTE_64F_PEDANTIC: return *(const double*)at;
        case CUBLAS_COMPUTE_32I: case CUBLAS_COMPUTE_32I_PEDANTIC: return *(const int*)at;
        default: return *(const float*)at;
        }
    }
};
struct Epilogue {
    int kind = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
};

// D = alpha op(A) op(B) + beta C, and what is asked for behind it; C is D but for cuBLASLt.
cublasStatus_t multiply(const char* call, cudaStream_t stream, bool later, Scale scale, long long m, long long n,
                        long long k, long long batch, Matrix a, Matrix b, Matrix c, Matrix d, Epilogue end = {}) {
    if (m < 0 || n < 0 || k < 0 || batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
    double alpha = later ? 0 : scale.of(scale.alpha), beta = later ? 0 : scale.of(scale.beta);
    return status(enqueue(stream, [=]() mutable {
        if (later) alpha = scale.of(scale.alpha), beta = scale.of(scale.beta);
        Message message;
        message.text(call).number(m).number(n).number(k).number(batch).raw(&alpha, 8).raw(&beta, 8);
        for (const Matrix& one : {a, b, c, d}) one.tell(message);
        return ask(MULTIPLY, message.number(end.kind).number(u64(end.bias))).status;
    }));
}

template <class T> struct Type;
template <> struct Type<float> { static const auto data = CUDA_R_32F; static const auto compute = CUBLAS_COMPUTE_32F; };
template <> struct Type<double> { static const auto data = CUDA_R_64F; static const auto compute = CUBLAS_COMPUTE_64F; };
template <> struct Type<__half> { static const auto data = CUDA_R_16F; static const auto compute = CUBLAS_COMPUTE_16F; };

// A loop over elements of vectors, which are all within memory that may be read or written.
struct Vector {
    const void* at;
    long long increment;
    bool writes;
};
template <class T, class F>
cublasStatus_t loop(const char* call, cublasHandle_t h, int n, std::vector<Vector> all, F work) {
    return status(enqueue(h->stream, [=] {
        for (const Vector& one : all) {
            const u64 bytes = n > 0 ? ((n - 1) * std::abs(one.increment) + 1) * sizeof(T) : 0;
            if (!may_touch(call, one.at, bytes, one.writes ? "writes" : "reads")) return cudaErrorInvalidValue;
            if (one.writes) mark_written(one.at, bytes);
        }
        work();
        return cudaSuccess;
    }));
}
long long place(int i, int n, int increment) { return (long long)(increment < 0 ? i - n + 1 : i) * increment; }

}  // namespace

cublasStatus_t cublasCreate(cublasHandle_t* h) { return *h = new cublasContext, FINE; }
cublasStatus_t cublasDestroy(cublasHandle_t h) { return delete h, FINE; }
cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) { return *version = 130000, FINE; }
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t stream) { return h->stream = stream, FINE; }
cublasStatus_t cublasGetStream(cublasHandle_t h, cudaStream_t* stream) { return *stream = h->stream, FINE; }
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return FINE; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return FINE; }
cublasStatus_t cublasSetPointerMode(cublasHandle_t h, cublasPointerMode_t mode) { return h->mode = mode, FINE; }
cublasStatus_t cublasGetPointerMode(cublasHandle_t h, cublasPointerMode_t* mode) { return *mode = h->mode, FINE; }
const char* cublasGetStatusName(cublasStatus_t s) {
    return s == FINE ? "CUBLAS_STATUS_SUCCESS" : s == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_INTERNAL_ERROR";
}
const char* cublasGetStatusString(cublasStatus_t s) { return s == FINE ? "success" : "an unsupported value or parameter was passed to the function"; }

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType at, int lda, long long sa,
                                          const void* B, cudaDataType bt, int ldb, long long sb, const void* beta, void* C,
                                          cudaDataType ct, int ldc, long long sc, int batch, cublasComputeType_t compute, cublasGemmAlgo_t) {
    const Matrix c{C, ct, ldc, sc, 0};
    return multiply("cublasGemm", h->stream, h->mode == CUBLAS_POINTER_MODE_DEVICE, {compute, alpha, beta}, m, n, k, batch,
                    {A, at, lda, sa, ta != CUBLAS_OP_N}, {B, bt, ldb, sb, tb != CUBLAS_OP_N}, c, c);
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha,
                            const void* A, cudaDataType at, int lda, const void* B, cudaDataType bt, int ldb, const void* beta,
                            void* C, cudaDataType ct, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo) {
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, A, at, lda, 0, B, bt, ldb, 0, beta, C, ct, ldc, 0, 1, compute, algo);
}

#define PRODUCTS(X, T) \
    cublasStatus_t cublas##X##gemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, \
                                                 const T* alpha, const T* A, int lda, long long sa, const T* B, int ldb, long long sb, \
                                                 const T* beta, T* C, int ldc, long long sc, int batch) { \
        const auto data = Type<T>::data; \
        return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, A, data, lda, sa, B, data, ldb, sb, beta, C, data, ldc, sc, batch, \
                                          Type<T>::compute, CUBLAS_GEMM_DEFAULT); \
    } \
    cublasStatus_t cublas##X##gemm(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, \
                                   const T* A, int lda, const T* B, int ldb, const T* beta, T* C, int ldc) { \
        return cublas##X##gemmStridedBatched(h, ta, tb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, ldc, 0, 1); \
    }
PRODUCTS(S, float)
PRODUCTS(D, double)
PRODUCTS(H, __half)

// y = alpha op(A) x + beta y, turned round: y and x are matrices of one row, whose columns lie an increment apart.
#define VECTORS(X, T) \
    cublasStatus_t cublas##X##gemv(cublasHandle_t h, cublasOperation_t t, int m, int n, const T* alpha, const T* A, int lda, \
                                   const T* x, int incx, const T* beta, T* y, int incy) { \
        const bool turned = t != CUBLAS_OP_N; \
        return cublas##X##gemm(h, CUBLAS_OP_N, turned ? CUBLAS_OP_N : CUBLAS_OP_T, 1, turned ? n : m, turned ? m : n, alpha, x, \
                               incx, A, lda, beta, y, incy); \
    } \
    cublasStatus_t cublas##X##axpy(cublasHandle_t h, int n, const T* alpha, const T* x, int incx, T* y, int incy) { \
        return loop<T>("cublas" #X "axpy", h, n, {{x, incx, false}, {y, incy, true}}, [=] { \
            for (int i = 0; i < n; ++i) y[place(i, n, incy)] += *alpha * x[place(i, n, incx)]; \
        }); \
    } \
    cublasStatus_t cublas##X##scal(cublasHandle_t h, int n, const T* alpha, T* x, int incx) { \
        return loop<T>("cublas" #X "scal", h, n, {{x, incx, true}}, [=] { \
            for (int i = 0; i < n; ++i) x[place(i, n, incx)] *= *alpha; \
        }); \
    } \
    cublasStatus_t cublas##X##copy(cublasHandle_t h, int n, const T* x, int incx, T* y, int incy) { \
        return loop<T>("cublas" #X "copy", h, n, {{x, incx, false}, {y, incy, true}}, [=] { \
            for (int i = 0; i < n; ++i) y[place(i, n, incy)] = x[place(i, n, incx)]; \
        }); \
    } \
    cublasStatus_t cublas##X##dot(cublasHandle_t h, int n, const T* x, int incx, const T* y, int incy, T* result) { \
        return loop<T>("cublas" #X "dot", h, n, {{x, incx, false}, {y, incy, false}}, [=] { \
            double sum = 0; \
            for (int i = 0; i < n; ++i) sum += double(x[place(i, n, incx)]) * y[place(i, n, incy)]; \
            *result = T(sum); \
            if (is_ours(result)) mark_written(result, sizeof(T)); \
        }); \
    }
VECTORS(S, float)
VECTORS(D, double)

// ---- cuBLASLt: what a product needs is gathered in descriptions

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { return *h = nullptr, FINE; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return FINE; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType scale) {
    return *d = new cublasLtDesc{compute, scale}, FINE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return delete d, FINE; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which, const void* value, size_t) {
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: case CUBLASLT_MATMUL_DESC_TRANSB:
        return d->transposed[which - CUBLASLT_MATMUL_DESC_TRANSA] = *(const int*)value != CUBLAS_OP_N, FINE;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return d->epilogue = *(const int*)value, FINE;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return d->bias = *(const void* const*)value, FINE;
    }
    wrong("cublasLtMatmulDescSetAttribute: attribute %d is not supported; leave it", int(which));
    return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, unsigned long long rows,
                                          unsigned long long columns, long long ld) {
    return *layout = new cublasLtLayout{type, rows, columns, ld}, FINE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return delete layout, FINE; }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) { return *p = nullptr, FINE; }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return FINE; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, size_t) {
    return FINE;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
    if (wanted > 0) results[0] = {};
    return *found = wanted > 0, FINE;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* A, cublasLtMatrixLayout_t a,
                              const void* B, cublasLtMatrixLayout_t b, const void* beta, const void* C, cublasLtMatrixLayout_t c, void* D,
                              cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
    const auto matrix = [](const void* at, cublasLtMatrixLayout_t l, int turned) { return Matrix{at, l->type, l->ld, 0, turned}; };
    return multiply("cublasLtMatmul", stream, false, {d->compute, alpha, beta}, out->rows, out->columns,
                    d->transposed[0] ? a->rows : a->columns, 1, matrix(A, a, d->transposed[0]), matrix(B, b, d->transposed[1]),
                    matrix(C, c, 0), matrix(D, out, 0), {d->epilogue, d->bias});
}
