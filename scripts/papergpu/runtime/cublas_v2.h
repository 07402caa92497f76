// cuBLAS as far as papergpu has it: plain products, and a few functions of vectors.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_NOT_SUPPORTED,
    CUBLAS_STATUS_LICENSE_ERROR
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C } cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum {
    CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_PEDANTIC_MATH, CUBLAS_TF32_TENSOR_OP_MATH,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 } cublasGemmAlgo_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC,
    CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I_PEDANTIC,
    CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;
typedef struct cublasContext* cublasHandle_t;

cublasStatus_t cublasCreate(cublasHandle_t*);
cublasStatus_t cublasDestroy(cublasHandle_t);
cublasStatus_t cublasGetVersion(cublasHandle_t, int*);
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasGetStream(cublasHandle_t, cudaStream_t*);
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t);
cublasStatus_t cublasGetPointerMode(cublasHandle_t, cublasPointerMode_t*);
const char* cublasGetStatusName(cublasStatus_t);
const char* cublasGetStatusString(cublasStatus_t);

#define PRODUCTS(X, T) \
    cublasStatus_t cublas##X##gemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, \
                                   const T* alpha, const T* A, int lda, const T* B, int ldb, const T* beta, T* C, \
                                   int ldc); \
    cublasStatus_t cublas##X##gemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, \
                                                 int k, const T* alpha, const T* A, int lda, long long strideA, \
                                                 const T* B, int ldb, long long strideB, const T* beta, T* C, \
                                                 int ldc, long long strideC, int batch);
#define VECTORS(X, T) \
    cublasStatus_t cublas##X##gemv(cublasHandle_t, cublasOperation_t, int m, int n, const T* alpha, const T* A, \
                                   int lda, const T* x, int incx, const T* beta, T* y, int incy); \
    cublasStatus_t cublas##X##axpy(cublasHandle_t, int n, const T* alpha, const T* x, int incx, T* y, int incy); \
    cublasStatus_t cublas##X##scal(cublasHandle_t, int n, const T* alpha, T* x, int incx); \
    cublasStatus_t cublas##X##copy(cublasHandle_t, int n, const T* x, int incx, T* y, int incy); \
    cublasStatus_t cublas##X##dot(cublasHandle_t, int n, const T* x, int incx, const T* y, int incy, T* result);
PRODUCTS(S, float)
PRODUCTS(D, double)
PRODUCTS(H, __half)
VECTORS(S, float)
VECTORS(D, double)
#undef PRODUCTS
#undef VECTORS

cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                            const void* alpha, const void* A, cudaDataType, int lda, const void* B, cudaDataType,
                            int ldb, const void* beta, void* C, cudaDataType, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t);
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                                          const void* alpha, const void* A, cudaDataType, int lda, long long strideA,
                                          const void* B, cudaDataType, int ldb, long long strideB, const void* beta,
                                          void* C, cudaDataType, int ldc, long long strideC, int batch,
                                          cublasComputeType_t, cublasGemmAlgo_t);

#ifdef __cplusplus
}
// cuBLAS has these for C++ callers that pass a data type for the way to compute.
inline cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t a, cublasOperation_t b, int m, int n, int k,
                                   const void* alpha, const void* A, cudaDataType at, int lda, const void* B,
                                   cudaDataType bt, int ldb, const void* beta, void* C, cudaDataType ct, int ldc,
                                   cudaDataType compute, cublasGemmAlgo_t algo) {
    return cublasGemmEx(h, a, b, m, n, k, alpha, A, at, lda, B, bt, ldb, beta, C, ct, ldc,
                        compute == CUDA_R_16F   ? CUBLAS_COMPUTE_16F
                        : compute == CUDA_R_64F ? CUBLAS_COMPUTE_64F
                        : compute == CUDA_R_32I ? CUBLAS_COMPUTE_32I
                                                : CUBLAS_COMPUTE_32F, algo);
}
#endif
