/* Made from shim/cuda.table by shim/gen; not to be edited. */
enum {
  OP_begin = 1024,
  OP_ends = 1025,
  OP_load = 1026,
  OP_params = 1027,
  OP_launch = 1028,
  OP_copy_in = 1029,
  OP_copy_out = 1030,
  OP_copy_box = 1031,
  OP_load_library = 1032,
  OP_name = 1033,
  OP_nodes = 1034,
  OP_kernels_of = 1035,
  OP_access = 1036,
  OP_link_begin = 1037,
  OP_link_add = 1038,
  OP_link_complete = 1039,
  OP_link_end = 1040,
  OP_occupancy = 1041,
  OP_DeviceGetAttribute = 1056,
  OP_DeviceTotalMem_v2 = 1057,
  OP_DeviceGetExecAffinitySupport = 1058,
  OP_DeviceGetDefaultMemPool = 1059,
  OP_DeviceGetMemPool = 1060,
  OP_DeviceSetMemPool = 1061,
  OP_DeviceGetTexture1DLinearMaxWidth = 1062,
  OP_DevicePrimaryCtxRetain = 1072,
  OP_DevicePrimaryCtxRelease_v2 = 1073,
  OP_DevicePrimaryCtxSetFlags_v2 = 1074,
  OP_DevicePrimaryCtxGetState = 1075,
  OP_DevicePrimaryCtxReset_v2 = 1076,
  OP_CtxCreate_v2 = 1077,
  OP_CtxDestroy_v2 = 1078,
  OP_CtxPushCurrent_v2 = 1079,
  OP_CtxPopCurrent_v2 = 1080,
  OP_CtxSetCurrent = 1081,
  OP_CtxGetFlags = 1082,
  OP_CtxSetFlags = 1083,
  OP_CtxGetId = 1084,
  OP_CtxSynchronize = 1085,
  OP_CtxSetLimit = 1086,
  OP_CtxGetLimit = 1087,
  OP_CtxGetCacheConfig = 1088,
  OP_CtxSetCacheConfig = 1089,
  OP_CtxGetSharedMemConfig = 1090,
  OP_CtxSetSharedMemConfig = 1091,
  OP_CtxGetApiVersion = 1092,
  OP_CtxGetStreamPriorityRange = 1093,
  OP_CtxResetPersistingL2Cache = 1094,
  OP_CtxRecordEvent = 1095,
  OP_CtxWaitEvent = 1096,
  OP_ModuleUnload = 1104,
  OP_ModuleGetFunction = 1105,
  OP_ModuleGetGlobal_v2 = 1106,
  OP_ModuleGetLoadingMode = 1107,
  OP_ModuleGetFunctionCount = 1108,
  OP_LibraryUnload = 1112,
  OP_LibraryGetKernel = 1113,
  OP_LibraryGetModule = 1114,
  OP_LibraryGetGlobal = 1115,
  OP_LibraryGetKernelCount = 1116,
  OP_KernelGetFunction = 1117,
  OP_KernelGetLibrary = 1118,
  OP_KernelGetAttribute = 1119,
  OP_KernelSetAttribute = 1120,
  OP_KernelSetCacheConfig = 1121,
  OP_FuncGetAttribute = 1122,
  OP_FuncSetAttribute = 1123,
  OP_FuncSetCacheConfig = 1124,
  OP_FuncSetSharedMemConfig = 1125,
  OP_FuncGetModule = 1126,
  OP_FuncIsLoaded = 1127,
  OP_FuncLoad = 1128,
  OP_OccupancyMaxActiveBlocksPerMultiprocessor = 1129,
  OP_OccupancyMaxActiveBlocksPerMultiprocessorWithFlags = 1130,
  OP_OccupancyAvailableDynamicSMemPerBlock = 1131,
  OP_MemGetInfo_v2 = 1152,
  OP_MemAlloc_v2 = 1153,
  OP_MemAllocPitch_v2 = 1154,
  OP_MemFree_v2 = 1155,
  OP_MemGetAddressRange_v2 = 1156,
  OP_MemAllocAsync = 1157,
  OP_MemAllocFromPoolAsync = 1158,
  OP_MemFreeAsync = 1159,
  OP_MemPoolCreate = 1160,
  OP_MemPoolDestroy = 1161,
  OP_MemPoolTrimTo = 1162,
  OP_MemPoolSetAttribute = 1163,
  OP_MemPoolGetAttribute = 1164,
  OP_MemPoolGetAccess = 1165,
  OP_MemCreate = 1166,
  OP_MemRelease = 1167,
  OP_MemMap = 1168,
  OP_MemUnmap = 1169,
  OP_MemAddressReserve = 1170,
  OP_MemAddressFree = 1171,
  OP_MemGetAccess = 1172,
  OP_MemGetAllocationGranularity = 1173,
  OP_MemGetAllocationPropertiesFromHandle = 1174,
  OP_MemRetainAllocationHandle = 1175,
  OP_ArrayCreate_v2 = 1176,
  OP_Array3DCreate_v2 = 1177,
  OP_ArrayGetDescriptor_v2 = 1178,
  OP_Array3DGetDescriptor_v2 = 1179,
  OP_ArrayDestroy = 1180,
  OP_MipmappedArrayCreate = 1181,
  OP_MipmappedArrayGetLevel = 1182,
  OP_MipmappedArrayDestroy = 1183,
  OP_MemcpyDtoD_v2 = 1192,
  OP_MemcpyDtoDAsync_v2 = 1193,
  OP_MemcpyPeer = 1194,
  OP_MemcpyPeerAsync = 1195,
  OP_MemcpyDtoA_v2 = 1196,
  OP_MemcpyAtoD_v2 = 1197,
  OP_MemcpyAtoA_v2 = 1198,
  OP_MemsetD8_v2 = 1200,
  OP_MemsetD16_v2 = 1201,
  OP_MemsetD32_v2 = 1202,
  OP_MemsetD2D8_v2 = 1203,
  OP_MemsetD2D16_v2 = 1204,
  OP_MemsetD2D32_v2 = 1205,
  OP_MemsetD8Async = 1206,
  OP_MemsetD16Async = 1207,
  OP_MemsetD32Async = 1208,
  OP_MemsetD2D8Async = 1209,
  OP_MemsetD2D16Async = 1210,
  OP_MemsetD2D32Async = 1211,
  OP_TexObjectCreate = 1280,
  OP_TexObjectDestroy = 1281,
  OP_SurfObjectCreate = 1282,
  OP_SurfObjectDestroy = 1283,
  OP_TensorMapEncodeTiled = 1284,
  OP_TensorMapEncodeIm2col = 1285,
  OP_TensorMapReplaceAddress = 1286,
  OP_StreamCreate = 1216,
  OP_StreamCreateWithPriority = 1217,
  OP_StreamGetPriority = 1218,
  OP_StreamGetFlags = 1219,
  OP_StreamGetId = 1220,
  OP_StreamGetCtx = 1221,
  OP_StreamWaitEvent = 1222,
  OP_StreamQuery = 1223,
  OP_StreamSynchronize = 1224,
  OP_StreamDestroy_v2 = 1225,
  OP_StreamCopyAttributes = 1226,
  OP_StreamGetAttribute = 1227,
  OP_StreamSetAttribute = 1228,
  OP_StreamBeginCapture_v2 = 1229,
  OP_StreamEndCapture = 1230,
  OP_StreamIsCapturing = 1231,
  OP_StreamGetCaptureInfo = 1232,
  OP_StreamGetCaptureInfo_v2 = 1233,
  OP_ThreadExchangeStreamCaptureMode = 1234,
  OP_StreamWaitValue32_v2 = 1235,
  OP_StreamWriteValue32_v2 = 1236,
  OP_StreamWaitValue64_v2 = 1237,
  OP_StreamWriteValue64_v2 = 1238,
  OP_EventCreate = 1248,
  OP_EventRecord = 1249,
  OP_EventRecordWithFlags = 1250,
  OP_EventQuery = 1251,
  OP_EventSynchronize = 1252,
  OP_EventDestroy_v2 = 1253,
  OP_EventElapsedTime = 1254,
  OP_GraphCreate = 1264,
  OP_GraphClone = 1265,
  OP_GraphDestroy = 1266,
  OP_GraphInstantiateWithFlags = 1267,
  OP_GraphExecDestroy = 1268,
  OP_GraphLaunch = 1269,
  OP_GraphUpload = 1270,
  OP_GraphExecGetFlags = 1271,
  OP_GraphNodeGetType = 1272,
};
enum {
  YR_CTX = 1,
  YR_STREAM = 2,
  YR_EVENT = 3,
  YR_MODULE = 4,
  YR_FUNCTION = 5,
  YR_LIBRARY = 6,
  YR_KERNEL = 7,
  YR_GRAPH = 8,
  YR_EXEC = 9,
  YR_NODE = 10,
  YR_ARRAY = 11,
  YR_MIPMAP = 12,
  YR_POOL = 13,
  YR_MEM = 14,
  YR_LINK = 15,
};

#ifdef YR_STUBS
CUresult yr_cuDeviceGetAttribute(int *a0, int a1, CUdevice a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a2) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceGetAttribute);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t *a0, CUdevice a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a1) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceTotalMem_v2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuDeviceGetProperties(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceGetExecAffinitySupport(int *a0, int a1, CUdevice a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a2) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceGetExecAffinitySupport);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuDeviceGetDefaultMemPool(CUpool *a0, CUdevice a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a1) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceGetDefaultMemPool);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuDeviceGetMemPool(CUpool *a0, CUdevice a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a1) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceGetMemPool);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuDeviceSetMemPool(CUdevice a0, CUpool a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a0) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceSetMemPool);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *a0, int a1, unsigned a2, CUdevice a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a3) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DeviceGetTexture1DLinearMaxWidth);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuDeviceGetNvSciSyncAttributes(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceRegisterAsyncNotification(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceUnregisterAsyncNotification(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuFlushGPUDirectRDMAWrites(void) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult yr_cuDevicePrimaryCtxRetain(CUctx *a0, CUdevice a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a1) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DevicePrimaryCtxRetain);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuDevicePrimaryCtxRelease_v2(CUdevice a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a0) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DevicePrimaryCtxRelease_v2);
  return yr_sync(NULL);
}
EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice a0, unsigned a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a0) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DevicePrimaryCtxSetFlags_v2);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice a0, unsigned *a1, int *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a0) return CUDA_ERROR_INVALID_DEVICE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_DevicePrimaryCtxGetState);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
    *a2 = (__typeof__(*a2))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
CUresult yr_cuDevicePrimaryCtxReset_v2(CUdevice a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a0) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_DevicePrimaryCtxReset_v2);
  return yr_sync(NULL);
}
CUresult yr_cuCtxCreate_v2(CUctx *a0, unsigned a1, CUdevice a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a2) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_CtxCreate_v2);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuCtxDestroy_v2(CUctx a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxDestroy_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
CUresult yr_cuCtxPushCurrent_v2(CUctx a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxPushCurrent_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
CUresult yr_cuCtxPopCurrent_v2(CUctx *a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxPopCurrent_v2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    if (a0) *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuCtxSetCurrent(uint64_t a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxSetCurrent);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxGetFlags(unsigned *a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_CtxGetFlags);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxSetFlags(unsigned a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxSetFlags);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxGetId(CUctx a0, uint64_t *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_CtxGetId);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxSynchronize(void) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxSynchronize);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxSetLimit(int a0, size_t a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxSetLimit);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxGetLimit(size_t *a0, int a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_CtxGetLimit);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxGetCacheConfig(int *a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_CtxGetCacheConfig);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxSetCacheConfig(int a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxSetCacheConfig);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxGetSharedMemConfig(int *a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_CtxGetSharedMemConfig);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxSetSharedMemConfig(int a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxSetSharedMemConfig);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxGetApiVersion(CUctx a0, unsigned *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_CtxGetApiVersion);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxGetStreamPriorityRange(int *a0, int *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxGetStreamPriorityRange);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    if (a0) *a0 = (__typeof__(*a0))yr_out(&a, 0);
    if (a1) *a1 = (__typeof__(*a1))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuCtxResetPersistingL2Cache(void) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxResetPersistingL2Cache);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxRecordEvent(CUctx a0, CUevent a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxRecordEvent);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxWaitEvent(CUctx a0, CUevent a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_CtxWaitEvent);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuCtxGetExecAffinity(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxAttach(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxFromGreenCtx(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGreenCtxCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceGetDevResource(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxGetDevResource(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuModuleUnload(CUmodule a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_ModuleUnload);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_send((uint64_t)(uintptr_t)a0, YR_MODULE);
}
EXPORT CUresult cuModuleGetFunction(CUfunction *a0, CUmodule a1, const char *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ModuleGetFunction);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_bytes(a2, strlen(a2) + 1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuModuleGetGlobal_v2(CUdeviceptr *a0, size_t *a1, CUmodule a2, const char *a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a3) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ModuleGetGlobal_v2);
  yp_word((uint64_t)(uintptr_t)a2);
  yp_bytes(a3, strlen(a3) + 1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    if (a0) *a0 = (__typeof__(*a0))yr_out(&a, 0);
    if (a1) *a1 = (__typeof__(*a1))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuModuleGetLoadingMode(int *a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ModuleGetLoadingMode);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuModuleGetFunctionCount(unsigned *a0, CUmodule a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ModuleGetFunctionCount);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuModuleGetTexRef(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuModuleGetSurfRef(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuLibraryUnload(CUlibrary a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_LibraryUnload);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuLibraryGetKernel(CUkernel *a0, CUlibrary a1, const char *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_LibraryGetKernel);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_bytes(a2, strlen(a2) + 1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuLibraryGetModule(CUmodule *a0, CUlibrary a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_LibraryGetModule);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuLibraryGetGlobal(CUdeviceptr *a0, size_t *a1, CUlibrary a2, const char *a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a3) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_LibraryGetGlobal);
  yp_word((uint64_t)(uintptr_t)a2);
  yp_bytes(a3, strlen(a3) + 1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    if (a0) *a0 = (__typeof__(*a0))yr_out(&a, 0);
    if (a1) *a1 = (__typeof__(*a1))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuLibraryGetKernelCount(unsigned *a0, CUlibrary a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_LibraryGetKernelCount);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuLibraryGetManaged(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuLibraryGetUnifiedFunction(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuKernelGetFunction(CUfunction *a0, CUkernel a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_KernelGetFunction);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuKernelGetLibrary(CUlibrary *a0, CUkernel a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_KernelGetLibrary);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuKernelGetAttribute(int *a0, int a1, CUkernel a2, CUdevice a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (a3) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_KernelGetAttribute);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuKernelSetAttribute(int a0, int a1, CUkernel a2, CUdevice a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a3) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_KernelSetAttribute);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  return yr_sync(NULL);
}
EXPORT CUresult cuKernelSetCacheConfig(CUkernel a0, int a1, CUdevice a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (a2) return CUDA_ERROR_INVALID_DEVICE;
  yr_begin(OP_KernelSetCacheConfig);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuFuncGetAttribute(int *a0, int a1, CUfunction a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_FuncGetAttribute);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction a0, int a1, int a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_FuncSetAttribute);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  return yr_sync(NULL);
}
EXPORT CUresult cuFuncSetCacheConfig(CUfunction a0, int a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_FuncSetCacheConfig);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction a0, int a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_FuncSetSharedMemConfig);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuFuncGetModule(CUmodule *a0, CUfunction a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_FuncGetModule);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuFuncIsLoaded(int *a0, CUfunction a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_FuncIsLoaded);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuFuncLoad(CUfunction a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_FuncLoad);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *a0, CUfunction a1, int a2, size_t a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_OccupancyMaxActiveBlocksPerMultiprocessor);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *a0, CUfunction a1, int a2, size_t a3, unsigned a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_OccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *a0, CUfunction a1, int a2, int a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_OccupancyAvailableDynamicSMemPerBlock);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemGetInfo_v2(size_t *a0, size_t *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemGetInfo_v2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    if (a0) *a0 = (__typeof__(*a0))yr_out(&a, 0);
    if (a1) *a1 = (__typeof__(*a1))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemAlloc_v2(CUdeviceptr *a0, size_t a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemAlloc_v2);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemAllocPitch_v2(CUdeviceptr *a0, size_t *a1, size_t a2, size_t a3, unsigned a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemAllocPitch_v2);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
    *a1 = (__typeof__(*a1))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemFree_v2(CUdeviceptr a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemFree_v2);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *a0, size_t *a1, CUdeviceptr a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemGetAddressRange_v2);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    if (a0) *a0 = (__typeof__(*a0))yr_out(&a, 0);
    if (a1) *a1 = (__typeof__(*a1))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemAllocAsync(CUdeviceptr *a0, size_t a1, CUstream a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemAllocAsync);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemAllocFromPoolAsync(CUdeviceptr *a0, size_t a1, CUpool a2, CUstream a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemAllocFromPoolAsync);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemFreeAsync(CUdeviceptr a0, CUstream a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemFreeAsync);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_end();
}
EXPORT CUresult cuMemPoolCreate(CUpool *a0, const void *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemPoolCreate);
  yp_bytes(a1, 88);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMemPoolDestroy(CUpool a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemPoolDestroy);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuMemPoolTrimTo(CUpool a0, size_t a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemPoolTrimTo);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
CUresult yr_cuMemPoolSetAttribute(CUpool a0, int a1, const void *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemPoolSetAttribute);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_bytes(a2, 8);
  return yr_sync(NULL);
}
CUresult yr_cuMemPoolGetAttribute(CUpool a0, int a1, uint64_t *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemPoolGetAttribute);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a2 = (__typeof__(*a2))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMemPoolGetAccess(int *a0, CUpool a1, const void *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemPoolGetAccess);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_bytes(a2, 8);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemCreate(uint64_t *a0, size_t a1, const void *a2, uint64_t a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemCreate);
  yp_word((uint64_t)a1);
  yp_bytes(a2, 32);
  yp_word((uint64_t)a3);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMemRelease(uint64_t a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemRelease);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuMemMap(CUdeviceptr a0, size_t a1, size_t a2, uint64_t a3, uint64_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemMap);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  return yr_sync(NULL);
}
EXPORT CUresult cuMemUnmap(CUdeviceptr a0, size_t a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemUnmap);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
CUresult yr_cuMemAddressReserve(CUdeviceptr *a0, size_t a1, size_t a2, CUdeviceptr a3, uint64_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemAddressReserve);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
CUresult yr_cuMemAddressFree(CUdeviceptr a0, size_t a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemAddressFree);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuMemGetAccess(uint64_t *a0, const void *a1, CUdeviceptr a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemGetAccess);
  yp_bytes(a1, 8);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMemGetAllocationGranularity(size_t *a0, const void *a1, int a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemGetAllocationGranularity);
  yp_bytes(a1, 32);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(void *a0, uint64_t a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemGetAllocationPropertiesFromHandle);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a0, 32);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMemRetainAllocationHandle(uint64_t *a0, CUdeviceptr a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MemRetainAllocationHandle);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuArrayCreate_v2(CUarray *a0, const void *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ArrayCreate_v2);
  yp_bytes(a1, 24);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuArray3DCreate_v2(CUarray *a0, const void *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_Array3DCreate_v2);
  yp_bytes(a1, 40);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuArrayGetDescriptor_v2(void *a0, CUarray a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ArrayGetDescriptor_v2);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a0, 24);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuArray3DGetDescriptor_v2(void *a0, CUarray a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_Array3DGetDescriptor_v2);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a0, 40);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuArrayDestroy(CUarray a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_ArrayDestroy);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuMipmappedArrayCreate(CUmipmap *a0, const void *a1, unsigned a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MipmappedArrayCreate);
  yp_bytes(a1, 40);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *a0, CUmipmap a1, unsigned a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_MipmappedArrayGetLevel);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuMipmappedArrayDestroy(CUmipmap a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MipmappedArrayDestroy);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
CUresult yr_cuMemcpyDtoD_v2(CUdeviceptr a0, CUdeviceptr a1, size_t a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyDtoD_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  return yr_end();
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr a0, CUdeviceptr a1, size_t a2, CUstream a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyDtoDAsync_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  return yr_end();
}
EXPORT CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr a0, CUdeviceptr a1, size_t a2, CUstream a3) { return cuMemcpyDtoDAsync_v2(a0, a1, a2, yr_own(a3)); }
CUresult yr_cuMemcpyPeer(CUdeviceptr a0, CUctx a1, CUdeviceptr a2, CUctx a3, size_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyPeer);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  yp_word((uint64_t)a4);
  return yr_end();
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr a0, CUctx a1, CUdeviceptr a2, CUctx a3, size_t a4, CUstream a5) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyPeerAsync);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  yp_word((uint64_t)a4);
  yp_word((uint64_t)(uintptr_t)a5);
  return yr_end();
}
EXPORT CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr a0, CUctx a1, CUdeviceptr a2, CUctx a3, size_t a4, CUstream a5) { return cuMemcpyPeerAsync(a0, a1, a2, a3, a4, yr_own(a5)); }
CUresult yr_cuMemcpyDtoA_v2(CUarray a0, size_t a1, CUdeviceptr a2, size_t a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyDtoA_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  return yr_end();
}
CUresult yr_cuMemcpyAtoD_v2(CUdeviceptr a0, CUarray a1, size_t a2, size_t a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyAtoD_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  return yr_end();
}
CUresult yr_cuMemcpyAtoA_v2(CUarray a0, size_t a1, CUarray a2, size_t a3, size_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemcpyAtoA_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  return yr_end();
}
EXPORT CUresult cuMemcpy3DPeer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy3DPeer_ptds(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy3DPeerAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy3DPeerAsync_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult yr_cuMemsetD8_v2(CUdeviceptr a0, unsigned char a1, size_t a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD8_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  return yr_end();
}
CUresult yr_cuMemsetD16_v2(CUdeviceptr a0, unsigned short a1, size_t a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD16_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  return yr_end();
}
CUresult yr_cuMemsetD32_v2(CUdeviceptr a0, unsigned a1, size_t a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD32_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  return yr_end();
}
CUresult yr_cuMemsetD2D8_v2(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD2D8_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  return yr_end();
}
CUresult yr_cuMemsetD2D16_v2(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD2D16_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  return yr_end();
}
CUresult yr_cuMemsetD2D32_v2(CUdeviceptr a0, size_t a1, unsigned a2, size_t a3, size_t a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD2D32_v2);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  return yr_end();
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr a0, unsigned char a1, size_t a2, CUstream a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD8Async);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  return yr_end();
}
EXPORT CUresult cuMemsetD8Async_ptsz(CUdeviceptr a0, unsigned char a1, size_t a2, CUstream a3) { return cuMemsetD8Async(a0, a1, a2, yr_own(a3)); }
EXPORT CUresult cuMemsetD16Async(CUdeviceptr a0, unsigned short a1, size_t a2, CUstream a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD16Async);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  return yr_end();
}
EXPORT CUresult cuMemsetD16Async_ptsz(CUdeviceptr a0, unsigned short a1, size_t a2, CUstream a3) { return cuMemsetD16Async(a0, a1, a2, yr_own(a3)); }
EXPORT CUresult cuMemsetD32Async(CUdeviceptr a0, unsigned a1, size_t a2, CUstream a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD32Async);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)(uintptr_t)a3);
  return yr_end();
}
EXPORT CUresult cuMemsetD32Async_ptsz(CUdeviceptr a0, unsigned a1, size_t a2, CUstream a3) { return cuMemsetD32Async(a0, a1, a2, yr_own(a3)); }
EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4, CUstream a5) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD2D8Async);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  yp_word((uint64_t)(uintptr_t)a5);
  return yr_end();
}
EXPORT CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4, CUstream a5) { return cuMemsetD2D8Async(a0, a1, a2, a3, a4, yr_own(a5)); }
EXPORT CUresult cuMemsetD2D16Async(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4, CUstream a5) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD2D16Async);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  yp_word((uint64_t)(uintptr_t)a5);
  return yr_end();
}
EXPORT CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4, CUstream a5) { return cuMemsetD2D16Async(a0, a1, a2, a3, a4, yr_own(a5)); }
EXPORT CUresult cuMemsetD2D32Async(CUdeviceptr a0, size_t a1, unsigned a2, size_t a3, size_t a4, CUstream a5) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_MemsetD2D32Async);
  yp_word((uint64_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  yp_word((uint64_t)(uintptr_t)a5);
  return yr_end();
}
EXPORT CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr a0, size_t a1, unsigned a2, size_t a3, size_t a4, CUstream a5) { return cuMemsetD2D32Async(a0, a1, a2, a3, a4, yr_own(a5)); }
EXPORT CUresult cuMemAllocManaged(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemAdvise(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPrefetchAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPrefetchAsync_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemRangeGetAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemRangeGetAttributes(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemExportToShareableHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemImportFromShareableHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPoolExportToShareableHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPoolImportFromShareableHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPoolExportPointer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPoolImportPointer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemMapArrayAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemMapArrayAsync_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemGetHandleForAddressRange(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuIpcGetEventHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuIpcOpenEventHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuIpcGetMemHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuIpcOpenMemHandle_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuIpcCloseMemHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuImportExternalMemory(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDestroyExternalMemory(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuImportExternalSemaphore(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMulticastCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult yr_cuTexObjectCreate(uint64_t *a0, const void *a1, const void *a2, const void *a3, unsigned a4) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  if (!a3) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_TexObjectCreate);
  yp_bytes(a1, 144);
  yp_bytes(a2, 104);
  yp_bytes(a3, 112);
  yp_word((uint64_t)a4);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuTexObjectDestroy(uint64_t a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_TexObjectDestroy);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuSurfObjectCreate(uint64_t *a0, const void *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_SurfObjectCreate);
  yp_bytes(a1, 144);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuSurfObjectDestroy(uint64_t a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_SurfObjectDestroy);
  yp_word((uint64_t)a0);
  return yr_sync(NULL);
}
CUresult yr_cuTensorMapEncodeTiled(void *a0, int a1, unsigned a2, uint64_t a3, const void *a4, const void *a5, const void *a6, const void *a7, int a8, int a9, int a10, int a11) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a4) return CUDA_ERROR_INVALID_VALUE;
  if (!a5) return CUDA_ERROR_INVALID_VALUE;
  if (!a6) return CUDA_ERROR_INVALID_VALUE;
  if (!a7) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_TensorMapEncodeTiled);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_bytes(a4, 40);
  yp_bytes(a5, 40);
  yp_bytes(a6, 20);
  yp_bytes(a7, 20);
  yp_word((uint64_t)a8);
  yp_word((uint64_t)a9);
  yp_word((uint64_t)a10);
  yp_word((uint64_t)a11);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a0, 128);
  }
  free(a.data);
  return r;
}
CUresult yr_cuTensorMapEncodeIm2col(void *a0, int a1, unsigned a2, uint64_t a3, const void *a4, const void *a5, const void *a6, const void *a7, unsigned a8, unsigned a9, const void *a10, int a11, int a12, int a13, int a14) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a4) return CUDA_ERROR_INVALID_VALUE;
  if (!a5) return CUDA_ERROR_INVALID_VALUE;
  if (!a6) return CUDA_ERROR_INVALID_VALUE;
  if (!a7) return CUDA_ERROR_INVALID_VALUE;
  if (!a10) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_TensorMapEncodeIm2col);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  yp_bytes(a4, 40);
  yp_bytes(a5, 40);
  yp_bytes(a6, 12);
  yp_bytes(a7, 12);
  yp_word((uint64_t)a8);
  yp_word((uint64_t)a9);
  yp_bytes(a10, 20);
  yp_word((uint64_t)a11);
  yp_word((uint64_t)a12);
  yp_word((uint64_t)a13);
  yp_word((uint64_t)a14);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a0, 128);
  }
  free(a.data);
  return r;
}
CUresult yr_cuTensorMapReplaceAddress(void *a0, uint64_t a1, const void *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_TensorMapReplaceAddress);
  yp_word((uint64_t)a1);
  yp_bytes(a2, 128);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a0, 128);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamCreate(CUstream *a0, unsigned a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamCreate);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamCreateWithPriority(CUstream *a0, unsigned a1, int a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamCreateWithPriority);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetPriority(CUstream a0, int *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetPriority);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetPriority_ptsz(CUstream a0, int *a1) { return cuStreamGetPriority(yr_own(a0), a1); }
EXPORT CUresult cuStreamGetFlags(CUstream a0, unsigned *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetFlags);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetFlags_ptsz(CUstream a0, unsigned *a1) { return cuStreamGetFlags(yr_own(a0), a1); }
EXPORT CUresult cuStreamGetId(CUstream a0, uint64_t *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetId);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetId_ptsz(CUstream a0, uint64_t *a1) { return cuStreamGetId(yr_own(a0), a1); }
EXPORT CUresult cuStreamGetCtx(CUstream a0, CUctx *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetCtx);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetCtx_ptsz(CUstream a0, CUctx *a1) { return cuStreamGetCtx(yr_own(a0), a1); }
EXPORT CUresult cuStreamWaitEvent(CUstream a0, CUevent a1, unsigned a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamWaitEvent);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  return yr_end();
}
EXPORT CUresult cuStreamWaitEvent_ptsz(CUstream a0, CUevent a1, unsigned a2) { return cuStreamWaitEvent(yr_own(a0), a1, a2); }
EXPORT CUresult cuStreamQuery(CUstream a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamQuery);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuStreamQuery_ptsz(CUstream a0) { return cuStreamQuery(yr_own(a0)); }
EXPORT CUresult cuStreamSynchronize(CUstream a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamSynchronize);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuStreamSynchronize_ptsz(CUstream a0) { return cuStreamSynchronize(yr_own(a0)); }
EXPORT CUresult cuStreamDestroy_v2(CUstream a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamDestroy_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_send((uint64_t)(uintptr_t)a0, YR_STREAM);
}
EXPORT CUresult cuStreamCopyAttributes(CUstream a0, CUstream a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamCopyAttributes);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuStreamCopyAttributes_ptsz(CUstream a0, CUstream a1) { return cuStreamCopyAttributes(yr_own(a0), a1); }
EXPORT CUresult cuStreamGetAttribute(CUstream a0, int a1, void *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetAttribute);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    yr_bytes(&a, a2, 64);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetAttribute_ptsz(CUstream a0, int a1, void *a2) { return cuStreamGetAttribute(yr_own(a0), a1, a2); }
EXPORT CUresult cuStreamSetAttribute(CUstream a0, int a1, const void *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a2) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamSetAttribute);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_bytes(a2, 64);
  return yr_sync(NULL);
}
EXPORT CUresult cuStreamSetAttribute_ptsz(CUstream a0, int a1, const void *a2) { return cuStreamSetAttribute(yr_own(a0), a1, a2); }
EXPORT CUresult cuStreamBeginCapture_v2(CUstream a0, int a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamBeginCapture_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  return yr_sync(NULL);
}
EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream a0, int a1) { return cuStreamBeginCapture_v2(yr_own(a0), a1); }
EXPORT CUresult cuStreamEndCapture(CUstream a0, CUgraph *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamEndCapture);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamEndCapture_ptsz(CUstream a0, CUgraph *a1) { return cuStreamEndCapture(yr_own(a0), a1); }
EXPORT CUresult cuStreamIsCapturing(CUstream a0, int *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamIsCapturing);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream a0, int *a1) { return cuStreamIsCapturing(yr_own(a0), a1); }
EXPORT CUresult cuStreamGetCaptureInfo(CUstream a0, int *a1, uint64_t *a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetCaptureInfo);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
    if (a2) *a2 = (__typeof__(*a2))yr_out(&a, 1);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamGetCaptureInfo_ptsz(CUstream a0, int *a1, uint64_t *a2) { return cuStreamGetCaptureInfo(yr_own(a0), a1, a2); }
CUresult yr_cuStreamGetCaptureInfo_v2(CUstream a0, int *a1, uint64_t *a2, CUgraph *a3, uint64_t *a4, uint64_t *a5) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_StreamGetCaptureInfo_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
    if (a2) *a2 = (__typeof__(*a2))yr_out(&a, 1);
    if (a3) *a3 = (void *)(uintptr_t)yr_out(&a, 2);
    if (a4) *a4 = (__typeof__(*a4))yr_out(&a, 3);
    if (a5) *a5 = (__typeof__(*a5))yr_out(&a, 4);
  }
  free(a.data);
  return r;
}
CUresult yr_cuThreadExchangeStreamCaptureMode(int a0, int *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_ThreadExchangeStreamCaptureMode);
  yp_word((uint64_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuStreamWaitValue32_v2(CUstream a0, CUdeviceptr a1, unsigned a2, unsigned a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamWaitValue32_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  return yr_end();
}
EXPORT CUresult cuStreamWaitValue32_v2_ptsz(CUstream a0, CUdeviceptr a1, unsigned a2, unsigned a3) { return cuStreamWaitValue32_v2(yr_own(a0), a1, a2, a3); }
EXPORT CUresult cuStreamWriteValue32_v2(CUstream a0, CUdeviceptr a1, unsigned a2, unsigned a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamWriteValue32_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  return yr_end();
}
EXPORT CUresult cuStreamWriteValue32_v2_ptsz(CUstream a0, CUdeviceptr a1, unsigned a2, unsigned a3) { return cuStreamWriteValue32_v2(yr_own(a0), a1, a2, a3); }
EXPORT CUresult cuStreamWaitValue64_v2(CUstream a0, CUdeviceptr a1, uint64_t a2, unsigned a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamWaitValue64_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  return yr_end();
}
EXPORT CUresult cuStreamWaitValue64_v2_ptsz(CUstream a0, CUdeviceptr a1, uint64_t a2, unsigned a3) { return cuStreamWaitValue64_v2(yr_own(a0), a1, a2, a3); }
EXPORT CUresult cuStreamWriteValue64_v2(CUstream a0, CUdeviceptr a1, uint64_t a2, unsigned a3) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_StreamWriteValue64_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)a1);
  yp_word((uint64_t)a2);
  yp_word((uint64_t)a3);
  return yr_end();
}
EXPORT CUresult cuStreamWriteValue64_v2_ptsz(CUstream a0, CUdeviceptr a1, uint64_t a2, unsigned a3) { return cuStreamWriteValue64_v2(yr_own(a0), a1, a2, a3); }
EXPORT CUresult cuStreamUpdateCaptureDependencies(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamUpdateCaptureDependencies_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamBatchMemOp_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamBatchMemOp_v2_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamAttachMemAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamAttachMemAsync_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamBeginCaptureToGraph(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEventCreate(CUevent *a0, unsigned a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_EventCreate);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuEventRecord(CUevent a0, CUstream a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_EventRecord);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_end();
}
EXPORT CUresult cuEventRecord_ptsz(CUevent a0, CUstream a1) { return cuEventRecord(a0, yr_own(a1)); }
EXPORT CUresult cuEventRecordWithFlags(CUevent a0, CUstream a1, unsigned a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_EventRecordWithFlags);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  return yr_end();
}
EXPORT CUresult cuEventRecordWithFlags_ptsz(CUevent a0, CUstream a1, unsigned a2) { return cuEventRecordWithFlags(a0, yr_own(a1), a2); }
EXPORT CUresult cuEventQuery(CUevent a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_EventQuery);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuEventSynchronize(CUevent a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_EventSynchronize);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_sync(NULL);
}
EXPORT CUresult cuEventDestroy_v2(CUevent a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_EventDestroy_v2);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_send((uint64_t)(uintptr_t)a0, YR_EVENT);
}
EXPORT CUresult cuEventElapsedTime(unsigned *a0, CUevent a1, CUevent a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_EventElapsedTime);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)(uintptr_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (__typeof__(*a0))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuGraphCreate(CUgraph *a0, unsigned a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_GraphCreate);
  yp_word((uint64_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuGraphClone(CUgraph *a0, CUgraph a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_GraphClone);
  yp_word((uint64_t)(uintptr_t)a1);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuGraphDestroy(CUgraph a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_GraphDestroy);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_send((uint64_t)(uintptr_t)a0, YR_GRAPH);
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUexec *a0, CUgraph a1, uint64_t a2) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a0) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_GraphInstantiateWithFlags);
  yp_word((uint64_t)(uintptr_t)a1);
  yp_word((uint64_t)a2);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a0 = (void *)(uintptr_t)yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuGraphExecDestroy(CUexec a0) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_GraphExecDestroy);
  yp_word((uint64_t)(uintptr_t)a0);
  return yr_send((uint64_t)(uintptr_t)a0, YR_EXEC);
}
EXPORT CUresult cuGraphLaunch(CUexec a0, CUstream a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_GraphLaunch);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_end();
}
EXPORT CUresult cuGraphLaunch_ptsz(CUexec a0, CUstream a1) { return cuGraphLaunch(a0, yr_own(a1)); }
EXPORT CUresult cuGraphUpload(CUexec a0, CUstream a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  yr_begin(OP_GraphUpload);
  yp_word((uint64_t)(uintptr_t)a0);
  yp_word((uint64_t)(uintptr_t)a1);
  return yr_end();
}
EXPORT CUresult cuGraphUpload_ptsz(CUexec a0, CUstream a1) { return cuGraphUpload(a0, yr_own(a1)); }
EXPORT CUresult cuGraphExecGetFlags(CUexec a0, uint64_t *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_GraphExecGetFlags);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuGraphNodeGetType(CUnode a0, int *a1) {
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!a1) return CUDA_ERROR_INVALID_VALUE;
  yr_begin(OP_GraphNodeGetType);
  yp_word((uint64_t)(uintptr_t)a0);
  answer a = {.land = NULL};
  CUresult r = yr_sync(&a);
  if (!r) {
    *a1 = (__typeof__(*a1))yr_out(&a, 0);
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuGraphExecUpdate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecUpdate_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddKernelNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddKernelNode_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddMemcpyNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddMemsetNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddHostNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddChildGraphNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddEmptyNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddEventRecordNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddEventWaitNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddMemAllocNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddMemFreeNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddDependencies(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphGetEdges(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecKernelNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphDestroyNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphDebugDotPrint(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceGetGraphMemAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceSetGraphMemAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceGraphMemTrim(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuUserObjectCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuUserObjectRelease(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphRetainUserObject(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuProfilerStart(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuProfilerStop(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuProfilerInitialize(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArray3DCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArray3DGetDescriptor(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArrayCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArrayGetDescriptor(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArrayGetMemoryRequirements(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArrayGetPlane(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuArrayGetSparseProperties(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCoredumpGetAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCoredumpGetAttributeGlobal(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCoredumpSetAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCoredumpSetAttributeGlobal(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxDestroy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxPopCurrent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuCtxPushCurrent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDestroyExternalSemaphore(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDevResourceGenerateDesc(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDevSmResourceSplitByCount(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuDeviceTotalMem(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamConsumerAcquireFrame(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamConsumerConnect(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamConsumerConnectWithFlags(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamConsumerDisconnect(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamConsumerReleaseFrame(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamProducerConnect(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamProducerDisconnect(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamProducerPresentFrame(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEGLStreamProducerReturnFrame(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuEventDestroy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuExternalMemoryGetMappedBuffer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLCtxCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLCtxCreate_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLGetDevices(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLGetDevices_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLInit(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLMapBufferObject(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLMapBufferObject_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLMapBufferObject_v2_ptds(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLMapBufferObjectAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLMapBufferObjectAsync_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLMapBufferObjectAsync_v2_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLRegisterBufferObject(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLSetBufferObjectMapFlags(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLUnmapBufferObject(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLUnmapBufferObjectAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGLUnregisterBufferObject(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddBatchMemOpNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddDependencies_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddExternalSemaphoresSignalNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddExternalSemaphoresWaitNode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphAddNode_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphBatchMemOpNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphBatchMemOpNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphChildGraphNodeGetGraph(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphConditionalHandleCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphEventRecordNodeGetEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphEventRecordNodeSetEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphEventWaitNodeGetEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphEventWaitNodeSetEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecChildGraphNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecExternalSemaphoresSignalNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecHostNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecMemcpyNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecMemsetNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExecNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExternalSemaphoresSignalNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExternalSemaphoresSignalNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExternalSemaphoresWaitNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphExternalSemaphoresWaitNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphGetEdges_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphHostNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphHostNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeCopyAttributes(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeGetAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeGetParams_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeSetAttribute(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphKernelNodeSetParams_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphMemAllocNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphMemFreeNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphMemcpyNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphMemcpyNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphMemsetNodeGetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphMemsetNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeFindInClone(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeGetDependencies(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeGetDependencies_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeGetDependentNodes(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeGetDependentNodes_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeGetEnabled(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeSetEnabled(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphNodeSetParams(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphReleaseUserObject(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphRemoveDependencies(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphRemoveDependencies_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsEGLRegisterImage(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsGLRegisterBuffer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsGLRegisterImage(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsMapResources(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsMapResources_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsResourceGetMappedEglFrame(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsResourceGetMappedMipmappedArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsResourceGetMappedPointer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsResourceGetMappedPointer_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsResourceSetMapFlags(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsResourceSetMapFlags_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsSubResourceGetMappedArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsUnmapResources(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsUnmapResources_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsUnregisterResource(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsVDPAURegisterOutputSurface(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGraphicsVDPAURegisterVideoSurface(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGreenCtxDestroy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGreenCtxGetDevResource(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGreenCtxRecordEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuGreenCtxWaitEvent(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuIpcOpenMemHandle(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemAdvise_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemAlloc(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemAllocHost(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemAllocPitch(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemFree(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemGetAddressRange(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemGetInfo(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemHostGetDevicePointer(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPrefetchAsync_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy2D(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy2DAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy2DUnaligned(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy3D(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpy3DAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyAtoA(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyAtoD(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyAtoH(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyAtoHAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyDtoA(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyDtoD(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyDtoDAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyDtoH(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyDtoHAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyHtoA(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyHtoAAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyHtoD(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemcpyHtoDAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemsetD16(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemsetD2D16(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemsetD2D32(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemsetD2D8(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemsetD32(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMemsetD8(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMipmappedArrayGetSparseProperties(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuModuleGetGlobal(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMulticastAddDevice(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMulticastBindAddr(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMulticastBindMem(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMulticastGetGranularity(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuMulticastUnbind(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuParamSetTexRef(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuSignalExternalSemaphoresAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuSignalExternalSemaphoresAsync_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamBatchMemOp(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamBatchMemOp_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamDestroy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamGetGreenCtx(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuSurfObjectGetResourceDesc(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuSurfRefGetArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuSurfRefSetArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexObjectGetResourceDesc(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexObjectGetResourceViewDesc(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexObjectGetTextureDesc(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefDestroy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetAddress(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetAddress_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetAddressMode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetBorderColor(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetFilterMode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetFlags(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetFormat(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetMaxAnisotropy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetMipmapFilterMode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetMipmapLevelBias(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetMipmapLevelClamp(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefGetMipmappedArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetAddress(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetAddress_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetAddress2D(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetAddress2D_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetAddress2D_v3(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetAddressMode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetBorderColor(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetFilterMode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetFlags(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetFormat(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetMaxAnisotropy(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetMipmapFilterMode(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetMipmapLevelBias(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetMipmapLevelClamp(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuTexRefSetMipmappedArray(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuUserObjectRetain(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuVDPAUCtxCreate(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuVDPAUCtxCreate_v2(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuVDPAUGetDevice(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuWaitExternalSemaphoresAsync(void) { return CUDA_ERROR_NOT_SUPPORTED; }
EXPORT CUresult cuWaitExternalSemaphoresAsync_ptsz(void) { return CUDA_ERROR_NOT_SUPPORTED; }
#elif !defined YR_NAMES
CUresult yr_cuDeviceGetAttribute(int *a0, int a1, CUdevice a2);
CUresult cuDeviceTotalMem_v2(size_t *a0, CUdevice a1);
CUresult cuDeviceGetExecAffinitySupport(int *a0, int a1, CUdevice a2);
CUresult cuDeviceGetDefaultMemPool(CUpool *a0, CUdevice a1);
CUresult cuDeviceGetMemPool(CUpool *a0, CUdevice a1);
CUresult cuDeviceSetMemPool(CUdevice a0, CUpool a1);
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *a0, int a1, unsigned a2, CUdevice a3);
CUresult yr_cuDevicePrimaryCtxRetain(CUctx *a0, CUdevice a1);
CUresult yr_cuDevicePrimaryCtxRelease_v2(CUdevice a0);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice a0, unsigned a1);
CUresult cuDevicePrimaryCtxGetState(CUdevice a0, unsigned *a1, int *a2);
CUresult yr_cuDevicePrimaryCtxReset_v2(CUdevice a0);
CUresult yr_cuCtxCreate_v2(CUctx *a0, unsigned a1, CUdevice a2);
CUresult yr_cuCtxDestroy_v2(CUctx a0);
CUresult yr_cuCtxPushCurrent_v2(CUctx a0);
CUresult yr_cuCtxPopCurrent_v2(CUctx *a0);
CUresult yr_cuCtxSetCurrent(uint64_t a0);
CUresult cuCtxGetFlags(unsigned *a0);
CUresult cuCtxSetFlags(unsigned a0);
CUresult cuCtxGetId(CUctx a0, uint64_t *a1);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSetLimit(int a0, size_t a1);
CUresult cuCtxGetLimit(size_t *a0, int a1);
CUresult cuCtxGetCacheConfig(int *a0);
CUresult cuCtxSetCacheConfig(int a0);
CUresult cuCtxGetSharedMemConfig(int *a0);
CUresult cuCtxSetSharedMemConfig(int a0);
CUresult cuCtxGetApiVersion(CUctx a0, unsigned *a1);
CUresult cuCtxGetStreamPriorityRange(int *a0, int *a1);
CUresult cuCtxResetPersistingL2Cache(void);
CUresult cuCtxRecordEvent(CUctx a0, CUevent a1);
CUresult cuCtxWaitEvent(CUctx a0, CUevent a1);
CUresult cuModuleUnload(CUmodule a0);
CUresult cuModuleGetFunction(CUfunction *a0, CUmodule a1, const char *a2);
CUresult yr_cuModuleGetGlobal_v2(CUdeviceptr *a0, size_t *a1, CUmodule a2, const char *a3);
CUresult cuModuleGetLoadingMode(int *a0);
CUresult cuModuleGetFunctionCount(unsigned *a0, CUmodule a1);
CUresult cuLibraryUnload(CUlibrary a0);
CUresult cuLibraryGetKernel(CUkernel *a0, CUlibrary a1, const char *a2);
CUresult cuLibraryGetModule(CUmodule *a0, CUlibrary a1);
CUresult yr_cuLibraryGetGlobal(CUdeviceptr *a0, size_t *a1, CUlibrary a2, const char *a3);
CUresult cuLibraryGetKernelCount(unsigned *a0, CUlibrary a1);
CUresult cuKernelGetFunction(CUfunction *a0, CUkernel a1);
CUresult cuKernelGetLibrary(CUlibrary *a0, CUkernel a1);
CUresult cuKernelGetAttribute(int *a0, int a1, CUkernel a2, CUdevice a3);
CUresult cuKernelSetAttribute(int a0, int a1, CUkernel a2, CUdevice a3);
CUresult cuKernelSetCacheConfig(CUkernel a0, int a1, CUdevice a2);
CUresult cuFuncGetAttribute(int *a0, int a1, CUfunction a2);
CUresult cuFuncSetAttribute(CUfunction a0, int a1, int a2);
CUresult cuFuncSetCacheConfig(CUfunction a0, int a1);
CUresult cuFuncSetSharedMemConfig(CUfunction a0, int a1);
CUresult cuFuncGetModule(CUmodule *a0, CUfunction a1);
CUresult cuFuncIsLoaded(int *a0, CUfunction a1);
CUresult cuFuncLoad(CUfunction a0);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *a0, CUfunction a1, int a2, size_t a3);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *a0, CUfunction a1, int a2, size_t a3, unsigned a4);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *a0, CUfunction a1, int a2, int a3);
CUresult cuMemGetInfo_v2(size_t *a0, size_t *a1);
CUresult yr_cuMemAlloc_v2(CUdeviceptr *a0, size_t a1);
CUresult yr_cuMemAllocPitch_v2(CUdeviceptr *a0, size_t *a1, size_t a2, size_t a3, unsigned a4);
CUresult yr_cuMemFree_v2(CUdeviceptr a0);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *a0, size_t *a1, CUdeviceptr a2);
CUresult yr_cuMemAllocAsync(CUdeviceptr *a0, size_t a1, CUstream a2);
CUresult yr_cuMemAllocFromPoolAsync(CUdeviceptr *a0, size_t a1, CUpool a2, CUstream a3);
CUresult yr_cuMemFreeAsync(CUdeviceptr a0, CUstream a1);
CUresult cuMemPoolCreate(CUpool *a0, const void *a1);
CUresult cuMemPoolDestroy(CUpool a0);
CUresult cuMemPoolTrimTo(CUpool a0, size_t a1);
CUresult yr_cuMemPoolSetAttribute(CUpool a0, int a1, const void *a2);
CUresult yr_cuMemPoolGetAttribute(CUpool a0, int a1, uint64_t *a2);
CUresult cuMemPoolGetAccess(int *a0, CUpool a1, const void *a2);
CUresult yr_cuMemCreate(uint64_t *a0, size_t a1, const void *a2, uint64_t a3);
CUresult cuMemRelease(uint64_t a0);
CUresult cuMemMap(CUdeviceptr a0, size_t a1, size_t a2, uint64_t a3, uint64_t a4);
CUresult cuMemUnmap(CUdeviceptr a0, size_t a1);
CUresult yr_cuMemAddressReserve(CUdeviceptr *a0, size_t a1, size_t a2, CUdeviceptr a3, uint64_t a4);
CUresult yr_cuMemAddressFree(CUdeviceptr a0, size_t a1);
CUresult cuMemGetAccess(uint64_t *a0, const void *a1, CUdeviceptr a2);
CUresult cuMemGetAllocationGranularity(size_t *a0, const void *a1, int a2);
CUresult cuMemGetAllocationPropertiesFromHandle(void *a0, uint64_t a1);
CUresult cuMemRetainAllocationHandle(uint64_t *a0, CUdeviceptr a1);
CUresult cuArrayCreate_v2(CUarray *a0, const void *a1);
CUresult cuArray3DCreate_v2(CUarray *a0, const void *a1);
CUresult cuArrayGetDescriptor_v2(void *a0, CUarray a1);
CUresult cuArray3DGetDescriptor_v2(void *a0, CUarray a1);
CUresult cuArrayDestroy(CUarray a0);
CUresult cuMipmappedArrayCreate(CUmipmap *a0, const void *a1, unsigned a2);
CUresult cuMipmappedArrayGetLevel(CUarray *a0, CUmipmap a1, unsigned a2);
CUresult cuMipmappedArrayDestroy(CUmipmap a0);
CUresult yr_cuMemcpyDtoD_v2(CUdeviceptr a0, CUdeviceptr a1, size_t a2);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr a0, CUdeviceptr a1, size_t a2, CUstream a3);
CUresult yr_cuMemcpyPeer(CUdeviceptr a0, CUctx a1, CUdeviceptr a2, CUctx a3, size_t a4);
CUresult cuMemcpyPeerAsync(CUdeviceptr a0, CUctx a1, CUdeviceptr a2, CUctx a3, size_t a4, CUstream a5);
CUresult yr_cuMemcpyDtoA_v2(CUarray a0, size_t a1, CUdeviceptr a2, size_t a3);
CUresult yr_cuMemcpyAtoD_v2(CUdeviceptr a0, CUarray a1, size_t a2, size_t a3);
CUresult yr_cuMemcpyAtoA_v2(CUarray a0, size_t a1, CUarray a2, size_t a3, size_t a4);
CUresult yr_cuMemsetD8_v2(CUdeviceptr a0, unsigned char a1, size_t a2);
CUresult yr_cuMemsetD16_v2(CUdeviceptr a0, unsigned short a1, size_t a2);
CUresult yr_cuMemsetD32_v2(CUdeviceptr a0, unsigned a1, size_t a2);
CUresult yr_cuMemsetD2D8_v2(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4);
CUresult yr_cuMemsetD2D16_v2(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4);
CUresult yr_cuMemsetD2D32_v2(CUdeviceptr a0, size_t a1, unsigned a2, size_t a3, size_t a4);
CUresult cuMemsetD8Async(CUdeviceptr a0, unsigned char a1, size_t a2, CUstream a3);
CUresult cuMemsetD16Async(CUdeviceptr a0, unsigned short a1, size_t a2, CUstream a3);
CUresult cuMemsetD32Async(CUdeviceptr a0, unsigned a1, size_t a2, CUstream a3);
CUresult cuMemsetD2D8Async(CUdeviceptr a0, size_t a1, unsigned char a2, size_t a3, size_t a4, CUstream a5);
CUresult cuMemsetD2D16Async(CUdeviceptr a0, size_t a1, unsigned short a2, size_t a3, size_t a4, CUstream a5);
CUresult cuMemsetD2D32Async(CUdeviceptr a0, size_t a1, unsigned a2, size_t a3, size_t a4, CUstream a5);
CUresult yr_cuTexObjectCreate(uint64_t *a0, const void *a1, const void *a2, const void *a3, unsigned a4);
CUresult cuTexObjectDestroy(uint64_t a0);
CUresult cuSurfObjectCreate(uint64_t *a0, const void *a1);
CUresult cuSurfObjectDestroy(uint64_t a0);
CUresult yr_cuTensorMapEncodeTiled(void *a0, int a1, unsigned a2, uint64_t a3, const void *a4, const void *a5, const void *a6, const void *a7, int a8, int a9, int a10, int a11);
CUresult yr_cuTensorMapEncodeIm2col(void *a0, int a1, unsigned a2, uint64_t a3, const void *a4, const void *a5, const void *a6, const void *a7, unsigned a8, unsigned a9, const void *a10, int a11, int a12, int a13, int a14);
CUresult yr_cuTensorMapReplaceAddress(void *a0, uint64_t a1, const void *a2);
CUresult cuStreamCreate(CUstream *a0, unsigned a1);
CUresult cuStreamCreateWithPriority(CUstream *a0, unsigned a1, int a2);
CUresult cuStreamGetPriority(CUstream a0, int *a1);
CUresult cuStreamGetFlags(CUstream a0, unsigned *a1);
CUresult cuStreamGetId(CUstream a0, uint64_t *a1);
CUresult cuStreamGetCtx(CUstream a0, CUctx *a1);
CUresult cuStreamWaitEvent(CUstream a0, CUevent a1, unsigned a2);
CUresult cuStreamQuery(CUstream a0);
CUresult cuStreamSynchronize(CUstream a0);
CUresult cuStreamDestroy_v2(CUstream a0);
CUresult cuStreamCopyAttributes(CUstream a0, CUstream a1);
CUresult cuStreamGetAttribute(CUstream a0, int a1, void *a2);
CUresult cuStreamSetAttribute(CUstream a0, int a1, const void *a2);
CUresult cuStreamBeginCapture_v2(CUstream a0, int a1);
CUresult cuStreamEndCapture(CUstream a0, CUgraph *a1);
CUresult cuStreamIsCapturing(CUstream a0, int *a1);
CUresult cuStreamGetCaptureInfo(CUstream a0, int *a1, uint64_t *a2);
CUresult yr_cuStreamGetCaptureInfo_v2(CUstream a0, int *a1, uint64_t *a2, CUgraph *a3, uint64_t *a4, uint64_t *a5);
CUresult yr_cuThreadExchangeStreamCaptureMode(int a0, int *a1);
CUresult cuStreamWaitValue32_v2(CUstream a0, CUdeviceptr a1, unsigned a2, unsigned a3);
CUresult cuStreamWriteValue32_v2(CUstream a0, CUdeviceptr a1, unsigned a2, unsigned a3);
CUresult cuStreamWaitValue64_v2(CUstream a0, CUdeviceptr a1, uint64_t a2, unsigned a3);
CUresult cuStreamWriteValue64_v2(CUstream a0, CUdeviceptr a1, uint64_t a2, unsigned a3);
CUresult cuEventCreate(CUevent *a0, unsigned a1);
CUresult cuEventRecord(CUevent a0, CUstream a1);
CUresult cuEventRecordWithFlags(CUevent a0, CUstream a1, unsigned a2);
CUresult cuEventQuery(CUevent a0);
CUresult cuEventSynchronize(CUevent a0);
CUresult cuEventDestroy_v2(CUevent a0);
CUresult cuEventElapsedTime(unsigned *a0, CUevent a1, CUevent a2);
CUresult cuGraphCreate(CUgraph *a0, unsigned a1);
CUresult cuGraphClone(CUgraph *a0, CUgraph a1);
CUresult cuGraphDestroy(CUgraph a0);
CUresult cuGraphInstantiateWithFlags(CUexec *a0, CUgraph a1, uint64_t a2);
CUresult cuGraphExecDestroy(CUexec a0);
CUresult cuGraphLaunch(CUexec a0, CUstream a1);
CUresult cuGraphUpload(CUexec a0, CUstream a1);
CUresult cuGraphExecGetFlags(CUexec a0, uint64_t *a1);
CUresult cuGraphNodeGetType(CUnode a0, int *a1);
#endif

/* X(base, symbol, since, its form whose default stream is the thread's) of each function. */
#define YR_FUNCTIONS(X) \
  X(cuInit, cuInit, 2000, cuInit) \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020, cuDriverGetVersion) \
  X(cuGetErrorName, cuGetErrorName, 6000, cuGetErrorName) \
  X(cuGetErrorString, cuGetErrorString, 6000, cuGetErrorString) \
  X(cuGetProcAddress, cuGetProcAddress, 11030, cuGetProcAddress) \
  X(cuGetProcAddress, cuGetProcAddress_v2, 12000, cuGetProcAddress_v2) \
  X(cuGetExportTable, cuGetExportTable, 3000, cuGetExportTable) \
  X(cuDeviceGet, cuDeviceGet, 2000, cuDeviceGet) \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, cuDeviceGetCount) \
  X(cuDeviceGetName, cuDeviceGetName, 2000, cuDeviceGetName) \
  X(cuDeviceGetUuid, cuDeviceGetUuid, 9020, cuDeviceGetUuid) \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, cuDeviceGetUuid_v2) \
  X(cuDeviceGetLuid, cuDeviceGetLuid, 10000, cuDeviceGetLuid) \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, cuDeviceGetAttribute) \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, cuDeviceTotalMem_v2) \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId) \
  X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId) \
  X(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000, cuDeviceComputeCapability) \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer) \
  X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute) \
  X(cuDeviceGetProperties, cuDeviceGetProperties, 2000, cuDeviceGetProperties) \
  X(cuDeviceGetExecAffinitySupport, cuDeviceGetExecAffinitySupport, 11040, cuDeviceGetExecAffinitySupport) \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool) \
  X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, cuDeviceGetMemPool) \
  X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, cuDeviceSetMemPool) \
  X(cuDeviceGetTexture1DLinearMaxWidth, cuDeviceGetTexture1DLinearMaxWidth, 11010, cuDeviceGetTexture1DLinearMaxWidth) \
  X(cuDeviceGetNvSciSyncAttributes, cuDeviceGetNvSciSyncAttributes, 10020, cuDeviceGetNvSciSyncAttributes) \
  X(cuDeviceRegisterAsyncNotification, cuDeviceRegisterAsyncNotification, 12040, cuDeviceRegisterAsyncNotification) \
  X(cuDeviceUnregisterAsyncNotification, cuDeviceUnregisterAsyncNotification, 12040, cuDeviceUnregisterAsyncNotification) \
  X(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, 11030, cuFlushGPUDirectRDMAWrites) \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, cuDevicePrimaryCtxRelease_v2) \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease) \
  X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000, cuDevicePrimaryCtxSetFlags_v2) \
  X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags) \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState) \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, cuDevicePrimaryCtxReset_v2) \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset) \
  X(cuCtxCreate, cuCtxCreate_v2, 3020, cuCtxCreate_v2) \
  X(cuCtxCreate, cuCtxCreate_v3, 11040, cuCtxCreate_v3) \
  X(cuCtxCreate, cuCtxCreate_v4, 12050, cuCtxCreate_v4) \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000, cuCtxDestroy_v2) \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, cuCtxPushCurrent_v2) \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, cuCtxPopCurrent_v2) \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, cuCtxSetCurrent) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, cuCtxGetCurrent) \
  X(cuCtxGetDevice, cuCtxGetDevice, 2000, cuCtxGetDevice) \
  X(cuCtxGetDevice, cuCtxGetDevice_v2, 13000, cuCtxGetDevice_v2) \
  X(cuCtxGetFlags, cuCtxGetFlags, 7000, cuCtxGetFlags) \
  X(cuCtxSetFlags, cuCtxSetFlags, 12010, cuCtxSetFlags) \
  X(cuCtxGetId, cuCtxGetId, 12000, cuCtxGetId) \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000, cuCtxSynchronize) \
  X(cuCtxSetLimit, cuCtxSetLimit, 3010, cuCtxSetLimit) \
  X(cuCtxGetLimit, cuCtxGetLimit, 3010, cuCtxGetLimit) \
  X(cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020, cuCtxGetCacheConfig) \
  X(cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020, cuCtxSetCacheConfig) \
  X(cuCtxGetSharedMemConfig, cuCtxGetSharedMemConfig, 4020, cuCtxGetSharedMemConfig) \
  X(cuCtxSetSharedMemConfig, cuCtxSetSharedMemConfig, 4020, cuCtxSetSharedMemConfig) \
  X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, cuCtxGetApiVersion) \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange) \
  X(cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, 11000, cuCtxResetPersistingL2Cache) \
  X(cuCtxRecordEvent, cuCtxRecordEvent, 12050, cuCtxRecordEvent) \
  X(cuCtxWaitEvent, cuCtxWaitEvent, 12050, cuCtxWaitEvent) \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess) \
  X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess) \
  X(cuCtxGetExecAffinity, cuCtxGetExecAffinity, 11040, cuCtxGetExecAffinity) \
  X(cuCtxAttach, cuCtxAttach, 2000, cuCtxAttach) \
  X(cuCtxDetach, cuCtxDetach, 2000, cuCtxDetach) \
  X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, cuCtxFromGreenCtx) \
  X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, cuGreenCtxCreate) \
  X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, cuDeviceGetDevResource) \
  X(cuCtxGetDevResource, cuCtxGetDevResource, 12040, cuCtxGetDevResource) \
  X(cuModuleLoad, cuModuleLoad, 2000, cuModuleLoad) \
  X(cuModuleLoadData, cuModuleLoadData, 2000, cuModuleLoadData) \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, cuModuleLoadDataEx) \
  X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary) \
  X(cuModuleUnload, cuModuleUnload, 2000, cuModuleUnload) \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000, cuModuleGetFunction) \
  X(cuModuleGetGlobal, cuModuleGetGlobal_v2, 3020, cuModuleGetGlobal_v2) \
  X(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode) \
  X(cuModuleGetFunctionCount, cuModuleGetFunctionCount, 12040, cuModuleGetFunctionCount) \
  X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040, cuModuleEnumerateFunctions) \
  X(cuModuleGetTexRef, cuModuleGetTexRef, 2000, cuModuleGetTexRef) \
  X(cuModuleGetSurfRef, cuModuleGetSurfRef, 3000, cuModuleGetSurfRef) \
  X(cuLinkCreate, cuLinkCreate, 5050, cuLinkCreate) \
  X(cuLinkCreate, cuLinkCreate_v2, 6050, cuLinkCreate_v2) \
  X(cuLinkAddData, cuLinkAddData, 5050, cuLinkAddData) \
  X(cuLinkAddData, cuLinkAddData_v2, 6050, cuLinkAddData_v2) \
  X(cuLinkAddFile, cuLinkAddFile, 5050, cuLinkAddFile) \
  X(cuLinkAddFile, cuLinkAddFile_v2, 6050, cuLinkAddFile_v2) \
  X(cuLinkComplete, cuLinkComplete, 5050, cuLinkComplete) \
  X(cuLinkDestroy, cuLinkDestroy, 5050, cuLinkDestroy) \
  X(cuLibraryLoadData, cuLibraryLoadData, 12000, cuLibraryLoadData) \
  X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile) \
  X(cuLibraryUnload, cuLibraryUnload, 12000, cuLibraryUnload) \
  X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, cuLibraryGetKernel) \
  X(cuLibraryGetModule, cuLibraryGetModule, 12000, cuLibraryGetModule) \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, cuLibraryGetGlobal) \
  X(cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040, cuLibraryGetKernelCount) \
  X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040, cuLibraryEnumerateKernels) \
  X(cuLibraryGetManaged, cuLibraryGetManaged, 12000, cuLibraryGetManaged) \
  X(cuLibraryGetUnifiedFunction, cuLibraryGetUnifiedFunction, 12000, cuLibraryGetUnifiedFunction) \
  X(cuKernelGetFunction, cuKernelGetFunction, 12000, cuKernelGetFunction) \
  X(cuKernelGetLibrary, cuKernelGetLibrary, 12050, cuKernelGetLibrary) \
  X(cuKernelGetAttribute, cuKernelGetAttribute, 12000, cuKernelGetAttribute) \
  X(cuKernelSetAttribute, cuKernelSetAttribute, 12000, cuKernelSetAttribute) \
  X(cuKernelSetCacheConfig, cuKernelSetCacheConfig, 12000, cuKernelSetCacheConfig) \
  X(cuKernelGetName, cuKernelGetName, 12030, cuKernelGetName) \
  X(cuKernelGetParamInfo, cuKernelGetParamInfo, 12040, cuKernelGetParamInfo) \
  X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, cuFuncGetAttribute) \
  X(cuFuncSetAttribute, cuFuncSetAttribute, 9000, cuFuncSetAttribute) \
  X(cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig) \
  X(cuFuncSetSharedMemConfig, cuFuncSetSharedMemConfig, 4020, cuFuncSetSharedMemConfig) \
  X(cuFuncGetModule, cuFuncGetModule, 11000, cuFuncGetModule) \
  X(cuFuncGetName, cuFuncGetName, 12030, cuFuncGetName) \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040, cuFuncGetParamInfo) \
  X(cuFuncIsLoaded, cuFuncIsLoaded, 12040, cuFuncIsLoaded) \
  X(cuFuncLoad, cuFuncLoad, 12040, cuFuncLoad) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
  X(cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyAvailableDynamicSMemPerBlock, 10020, cuOccupancyAvailableDynamicSMemPerBlock) \
  X(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050, cuOccupancyMaxPotentialBlockSize) \
  X(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags, 7000, cuOccupancyMaxPotentialBlockSizeWithFlags) \
  X(cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize, 11070, cuOccupancyMaxPotentialClusterSize) \
  X(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters, 11070, cuOccupancyMaxActiveClusters) \
  X(cuLaunchKernel, cuLaunchKernel, 4000, cuLaunchKernel_ptsz) \
  X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, cuLaunchKernelEx_ptsz) \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel_ptsz) \
  X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, cuLaunchCooperativeKernelMultiDevice) \
  X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, cuLaunchHostFunc_ptsz) \
  X(cuLaunch, cuLaunch, 2000, cuLaunch) \
  X(cuLaunchGrid, cuLaunchGrid, 2000, cuLaunchGrid) \
  X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, cuLaunchGridAsync) \
  X(cuFuncSetBlockShape, cuFuncSetBlockShape, 2000, cuFuncSetBlockShape) \
  X(cuFuncSetSharedSize, cuFuncSetSharedSize, 2000, cuFuncSetSharedSize) \
  X(cuParamSetSize, cuParamSetSize, 2000, cuParamSetSize) \
  X(cuParamSeti, cuParamSeti, 2000, cuParamSeti) \
  X(cuParamSetf, cuParamSetf, 2000, cuParamSetf) \
  X(cuParamSetv, cuParamSetv, 2000, cuParamSetv) \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020, cuMemGetInfo_v2) \
  X(cuMemAlloc, cuMemAlloc_v2, 3020, cuMemAlloc_v2) \
  X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, cuMemAllocPitch_v2) \
  X(cuMemFree, cuMemFree_v2, 3020, cuMemFree_v2) \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, cuMemGetAddressRange_v2) \
  X(cuMemAllocAsync, cuMemAllocAsync, 11020, cuMemAllocAsync_ptsz) \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync_ptsz) \
  X(cuMemFreeAsync, cuMemFreeAsync, 11020, cuMemFreeAsync_ptsz) \
  X(cuMemPoolCreate, cuMemPoolCreate, 11020, cuMemPoolCreate) \
  X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, cuMemPoolDestroy) \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, cuMemPoolTrimTo) \
  X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute) \
  X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute) \
  X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, cuMemPoolGetAccess) \
  X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, cuMemPoolSetAccess) \
  X(cuMemCreate, cuMemCreate, 10020, cuMemCreate) \
  X(cuMemRelease, cuMemRelease, 10020, cuMemRelease) \
  X(cuMemMap, cuMemMap, 10020, cuMemMap) \
  X(cuMemUnmap, cuMemUnmap, 10020, cuMemUnmap) \
  X(cuMemAddressReserve, cuMemAddressReserve, 10020, cuMemAddressReserve) \
  X(cuMemAddressFree, cuMemAddressFree, 10020, cuMemAddressFree) \
  X(cuMemSetAccess, cuMemSetAccess, 10020, cuMemSetAccess) \
  X(cuMemGetAccess, cuMemGetAccess, 10020, cuMemGetAccess) \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity) \
  X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle) \
  X(cuArrayCreate, cuArrayCreate_v2, 3020, cuArrayCreate_v2) \
  X(cuArray3DCreate, cuArray3DCreate_v2, 3020, cuArray3DCreate_v2) \
  X(cuArrayGetDescriptor, cuArrayGetDescriptor_v2, 3020, cuArrayGetDescriptor_v2) \
  X(cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2, 3020, cuArray3DGetDescriptor_v2) \
  X(cuArrayDestroy, cuArrayDestroy, 2000, cuArrayDestroy) \
  X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate) \
  X(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, cuMipmappedArrayGetLevel) \
  X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy) \
  X(cuMemAllocHost, cuMemAllocHost_v2, 3020, cuMemAllocHost_v2) \
  X(cuMemFreeHost, cuMemFreeHost, 2000, cuMemFreeHost) \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020, cuMemHostAlloc) \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, cuMemHostGetDevicePointer_v2) \
  X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, cuMemHostGetFlags) \
  X(cuMemHostRegister, cuMemHostRegister_v2, 6050, cuMemHostRegister_v2) \
  X(cuMemHostRegister, cuMemHostRegister, 4000, cuMemHostRegister) \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000, cuMemHostUnregister) \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, cuPointerGetAttribute) \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, cuPointerGetAttributes) \
  X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, cuPointerSetAttribute) \
  X(cuMemcpy, cuMemcpy, 4000, cuMemcpy_ptds) \
  X(cuMemcpyAsync, cuMemcpyAsync, 4000, cuMemcpyAsync_ptsz) \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, cuMemcpyHtoD_v2_ptds) \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, cuMemcpyHtoDAsync_v2_ptsz) \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, cuMemcpyDtoH_v2_ptds) \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, cuMemcpyDtoHAsync_v2_ptsz) \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, cuMemcpyDtoD_v2_ptds) \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, cuMemcpyDtoDAsync_v2_ptsz) \
  X(cuMemcpyPeer, cuMemcpyPeer, 4000, cuMemcpyPeer_ptds) \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync_ptsz) \
  X(cuMemcpyDtoA, cuMemcpyDtoA_v2, 3020, cuMemcpyDtoA_v2_ptds) \
  X(cuMemcpyAtoD, cuMemcpyAtoD_v2, 3020, cuMemcpyAtoD_v2_ptds) \
  X(cuMemcpyAtoA, cuMemcpyAtoA_v2, 3020, cuMemcpyAtoA_v2_ptds) \
  X(cuMemcpyHtoA, cuMemcpyHtoA_v2, 3020, cuMemcpyHtoA_v2_ptds) \
  X(cuMemcpyAtoH, cuMemcpyAtoH_v2, 3020, cuMemcpyAtoH_v2_ptds) \
  X(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, 3020, cuMemcpyHtoAAsync_v2_ptsz) \
  X(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, 3020, cuMemcpyAtoHAsync_v2_ptsz) \
  X(cuMemcpy2D, cuMemcpy2D_v2, 3020, cuMemcpy2D_v2_ptds) \
  X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, 3020, cuMemcpy2DUnaligned_v2_ptds) \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020, cuMemcpy2DAsync_v2_ptsz) \
  X(cuMemcpy3D, cuMemcpy3D_v2, 3020, cuMemcpy3D_v2_ptds) \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, 3020, cuMemcpy3DAsync_v2_ptsz) \
  X(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, cuMemcpy3DPeer_ptds) \
  X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, cuMemcpy3DPeerAsync_ptsz) \
  X(cuMemsetD8, cuMemsetD8_v2, 3020, cuMemsetD8_v2_ptds) \
  X(cuMemsetD16, cuMemsetD16_v2, 3020, cuMemsetD16_v2_ptds) \
  X(cuMemsetD32, cuMemsetD32_v2, 3020, cuMemsetD32_v2_ptds) \
  X(cuMemsetD2D8, cuMemsetD2D8_v2, 3020, cuMemsetD2D8_v2_ptds) \
  X(cuMemsetD2D16, cuMemsetD2D16_v2, 3020, cuMemsetD2D16_v2_ptds) \
  X(cuMemsetD2D32, cuMemsetD2D32_v2, 3020, cuMemsetD2D32_v2_ptds) \
  X(cuMemsetD8Async, cuMemsetD8Async, 3020, cuMemsetD8Async_ptsz) \
  X(cuMemsetD16Async, cuMemsetD16Async, 3020, cuMemsetD16Async_ptsz) \
  X(cuMemsetD32Async, cuMemsetD32Async, 3020, cuMemsetD32Async_ptsz) \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, cuMemsetD2D8Async_ptsz) \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, cuMemsetD2D16Async_ptsz) \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, cuMemsetD2D32Async_ptsz) \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, cuMemAllocManaged) \
  X(cuMemAdvise, cuMemAdvise, 8000, cuMemAdvise) \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, cuMemPrefetchAsync_ptsz) \
  X(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000, cuMemRangeGetAttribute) \
  X(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000, cuMemRangeGetAttributes) \
  X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle) \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle) \
  X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle) \
  X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle) \
  X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, cuMemPoolExportPointer) \
  X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, cuMemPoolImportPointer) \
  X(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, cuMemMapArrayAsync_ptsz) \
  X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange) \
  X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, cuIpcGetEventHandle) \
  X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle) \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, cuIpcGetMemHandle) \
  X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, cuIpcOpenMemHandle_v2) \
  X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle) \
  X(cuImportExternalMemory, cuImportExternalMemory, 10000, cuImportExternalMemory) \
  X(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, cuDestroyExternalMemory) \
  X(cuImportExternalSemaphore, cuImportExternalSemaphore, 10000, cuImportExternalSemaphore) \
  X(cuMulticastCreate, cuMulticastCreate, 12010, cuMulticastCreate) \
  X(cuTexObjectCreate, cuTexObjectCreate, 5000, cuTexObjectCreate) \
  X(cuTexObjectDestroy, cuTexObjectDestroy, 5000, cuTexObjectDestroy) \
  X(cuSurfObjectCreate, cuSurfObjectCreate, 5000, cuSurfObjectCreate) \
  X(cuSurfObjectDestroy, cuSurfObjectDestroy, 5000, cuSurfObjectDestroy) \
  X(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000, cuTensorMapEncodeTiled) \
  X(cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2col, 12000, cuTensorMapEncodeIm2col) \
  X(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, 12000, cuTensorMapReplaceAddress) \
  X(cuStreamCreate, cuStreamCreate, 2000, cuStreamCreate) \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority) \
  X(cuStreamGetPriority, cuStreamGetPriority, 5050, cuStreamGetPriority_ptsz) \
  X(cuStreamGetFlags, cuStreamGetFlags, 5050, cuStreamGetFlags_ptsz) \
  X(cuStreamGetId, cuStreamGetId, 12000, cuStreamGetId_ptsz) \
  X(cuStreamGetCtx, cuStreamGetCtx, 9020, cuStreamGetCtx_ptsz) \
  X(cuStreamGetCtx, cuStreamGetCtx_v2, 12050, cuStreamGetCtx_v2_ptsz) \
  X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, cuStreamWaitEvent_ptsz) \
  X(cuStreamQuery, cuStreamQuery, 2000, cuStreamQuery_ptsz) \
  X(cuStreamSynchronize, cuStreamSynchronize, 2000, cuStreamSynchronize_ptsz) \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000, cuStreamDestroy_v2) \
  X(cuStreamCopyAttributes, cuStreamCopyAttributes, 11000, cuStreamCopyAttributes_ptsz) \
  X(cuStreamGetAttribute, cuStreamGetAttribute, 11000, cuStreamGetAttribute_ptsz) \
  X(cuStreamSetAttribute, cuStreamSetAttribute, 11000, cuStreamSetAttribute_ptsz) \
  X(cuStreamBeginCapture, cuStreamBeginCapture, 10000, cuStreamBeginCapture_ptsz) \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, cuStreamBeginCapture_v2_ptsz) \
  X(cuStreamEndCapture, cuStreamEndCapture, 10000, cuStreamEndCapture_ptsz) \
  X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, cuStreamIsCapturing_ptsz) \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo_ptsz) \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, 11030, cuStreamGetCaptureInfo_v2_ptsz) \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode) \
  X(cuStreamWaitValue32, cuStreamWaitValue32, 8000, cuStreamWaitValue32_ptsz) \
  X(cuStreamWriteValue32, cuStreamWriteValue32, 8000, cuStreamWriteValue32_ptsz) \
  X(cuStreamWaitValue64, cuStreamWaitValue64, 9000, cuStreamWaitValue64_ptsz) \
  X(cuStreamWriteValue64, cuStreamWriteValue64, 9000, cuStreamWriteValue64_ptsz) \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070, cuStreamWaitValue32_v2_ptsz) \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070, cuStreamWriteValue32_v2_ptsz) \
  X(cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070, cuStreamWaitValue64_v2_ptsz) \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070, cuStreamWriteValue64_v2_ptsz) \
  X(cuStreamAddCallback, cuStreamAddCallback, 5000, cuStreamAddCallback_ptsz) \
  X(cuStreamGetDevice, cuStreamGetDevice, 12080, cuStreamGetDevice_ptsz) \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, 12030, cuStreamGetCaptureInfo_v3_ptsz) \
  X(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies_ptsz) \
  X(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070, cuStreamBatchMemOp_v2_ptsz) \
  X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, cuStreamAttachMemAsync_ptsz) \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph_ptsz) \
  X(cuEventCreate, cuEventCreate, 2000, cuEventCreate) \
  X(cuEventRecord, cuEventRecord, 2000, cuEventRecord_ptsz) \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, cuEventRecordWithFlags_ptsz) \
  X(cuEventQuery, cuEventQuery, 2000, cuEventQuery) \
  X(cuEventSynchronize, cuEventSynchronize, 2000, cuEventSynchronize) \
  X(cuEventDestroy, cuEventDestroy_v2, 4000, cuEventDestroy_v2) \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000, cuEventElapsedTime) \
  X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080, cuEventElapsedTime_v2) \
  X(cuGraphCreate, cuGraphCreate, 10000, cuGraphCreate) \
  X(cuGraphClone, cuGraphClone, 10000, cuGraphClone) \
  X(cuGraphDestroy, cuGraphDestroy, 10000, cuGraphDestroy) \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags) \
  X(cuGraphInstantiate, cuGraphInstantiate, 10000, cuGraphInstantiate) \
  X(cuGraphInstantiate, cuGraphInstantiate_v2, 11000, cuGraphInstantiate_v2) \
  X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams_ptsz) \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, cuGraphExecDestroy) \
  X(cuGraphLaunch, cuGraphLaunch, 10000, cuGraphLaunch_ptsz) \
  X(cuGraphUpload, cuGraphUpload, 11010, cuGraphUpload_ptsz) \
  X(cuGraphExecGetFlags, cuGraphExecGetFlags, 12000, cuGraphExecGetFlags) \
  X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, cuGraphNodeGetType) \
  X(cuGraphGetNodes, cuGraphGetNodes, 10000, cuGraphGetNodes) \
  X(cuGraphGetRootNodes, cuGraphGetRootNodes, 10000, cuGraphGetRootNodes) \
  X(cuGraphExecUpdate, cuGraphExecUpdate, 10020, cuGraphExecUpdate) \
  X(cuGraphExecUpdate, cuGraphExecUpdate_v2, 12000, cuGraphExecUpdate_v2) \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode, 10000, cuGraphAddKernelNode) \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000, cuGraphAddKernelNode_v2) \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode) \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode) \
  X(cuGraphAddHostNode, cuGraphAddHostNode, 10000, cuGraphAddHostNode) \
  X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode) \
  X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode) \
  X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010, cuGraphAddEventRecordNode) \
  X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010, cuGraphAddEventWaitNode) \
  X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode) \
  X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode) \
  X(cuGraphAddNode, cuGraphAddNode, 12020, cuGraphAddNode) \
  X(cuGraphAddDependencies, cuGraphAddDependencies, 10000, cuGraphAddDependencies) \
  X(cuGraphGetEdges, cuGraphGetEdges, 10000, cuGraphGetEdges) \
  X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, 10000, cuGraphKernelNodeGetParams) \
  X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 10000, cuGraphKernelNodeSetParams) \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010, cuGraphExecKernelNodeSetParams) \
  X(cuGraphDestroyNode, cuGraphDestroyNode, 10000, cuGraphDestroyNode) \
  X(cuGraphDebugDotPrint, cuGraphDebugDotPrint, 11030, cuGraphDebugDotPrint) \
  X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, cuDeviceGetGraphMemAttribute) \
  X(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040, cuDeviceSetGraphMemAttribute) \
  X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim) \
  X(cuUserObjectCreate, cuUserObjectCreate, 11030, cuUserObjectCreate) \
  X(cuUserObjectRelease, cuUserObjectRelease, 11030, cuUserObjectRelease) \
  X(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030, cuGraphRetainUserObject) \
  X(cuProfilerStart, cuProfilerStart, 4000, cuProfilerStart) \
  X(cuProfilerStop, cuProfilerStop, 4000, cuProfilerStop) \
  X(cuProfilerInitialize, cuProfilerInitialize, 4000, cuProfilerInitialize) \
  X(cuArray3DCreate, cuArray3DCreate, 2000, cuArray3DCreate) \
  X(cuArray3DGetDescriptor, cuArray3DGetDescriptor, 2000, cuArray3DGetDescriptor) \
  X(cuArrayCreate, cuArrayCreate, 2000, cuArrayCreate) \
  X(cuArrayGetDescriptor, cuArrayGetDescriptor, 2000, cuArrayGetDescriptor) \
  X(cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements, 11060, cuArrayGetMemoryRequirements) \
  X(cuArrayGetPlane, cuArrayGetPlane, 11020, cuArrayGetPlane) \
  X(cuArrayGetSparseProperties, cuArrayGetSparseProperties, 11010, cuArrayGetSparseProperties) \
  X(cuCoredumpGetAttribute, cuCoredumpGetAttribute, 12010, cuCoredumpGetAttribute) \
  X(cuCoredumpGetAttributeGlobal, cuCoredumpGetAttributeGlobal, 12010, cuCoredumpGetAttributeGlobal) \
  X(cuCoredumpSetAttribute, cuCoredumpSetAttribute, 12010, cuCoredumpSetAttribute) \
  X(cuCoredumpSetAttributeGlobal, cuCoredumpSetAttributeGlobal, 12010, cuCoredumpSetAttributeGlobal) \
  X(cuCtxCreate, cuCtxCreate, 2000, cuCtxCreate) \
  X(cuCtxDestroy, cuCtxDestroy, 2000, cuCtxDestroy) \
  X(cuCtxPopCurrent, cuCtxPopCurrent, 2000, cuCtxPopCurrent) \
  X(cuCtxPushCurrent, cuCtxPushCurrent, 2000, cuCtxPushCurrent) \
  X(cuDestroyExternalSemaphore, cuDestroyExternalSemaphore, 10000, cuDestroyExternalSemaphore) \
  X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, cuDevResourceGenerateDesc) \
  X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040, cuDevSmResourceSplitByCount) \
  X(cuDeviceTotalMem, cuDeviceTotalMem, 2000, cuDeviceTotalMem) \
  X(cuEGLStreamConsumerAcquireFrame, cuEGLStreamConsumerAcquireFrame, 7000, cuEGLStreamConsumerAcquireFrame) \
  X(cuEGLStreamConsumerConnect, cuEGLStreamConsumerConnect, 7000, cuEGLStreamConsumerConnect) \
  X(cuEGLStreamConsumerConnectWithFlags, cuEGLStreamConsumerConnectWithFlags, 8000, cuEGLStreamConsumerConnectWithFlags) \
  X(cuEGLStreamConsumerDisconnect, cuEGLStreamConsumerDisconnect, 7000, cuEGLStreamConsumerDisconnect) \
  X(cuEGLStreamConsumerReleaseFrame, cuEGLStreamConsumerReleaseFrame, 7000, cuEGLStreamConsumerReleaseFrame) \
  X(cuEGLStreamProducerConnect, cuEGLStreamProducerConnect, 7000, cuEGLStreamProducerConnect) \
  X(cuEGLStreamProducerDisconnect, cuEGLStreamProducerDisconnect, 7000, cuEGLStreamProducerDisconnect) \
  X(cuEGLStreamProducerPresentFrame, cuEGLStreamProducerPresentFrame, 7000, cuEGLStreamProducerPresentFrame) \
  X(cuEGLStreamProducerReturnFrame, cuEGLStreamProducerReturnFrame, 7000, cuEGLStreamProducerReturnFrame) \
  X(cuEventDestroy, cuEventDestroy, 2000, cuEventDestroy) \
  X(cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000, cuExternalMemoryGetMappedBuffer) \
  X(cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, 10000, cuExternalMemoryGetMappedMipmappedArray) \
  X(cuGLCtxCreate, cuGLCtxCreate, 2000, cuGLCtxCreate) \
  X(cuGLCtxCreate, cuGLCtxCreate_v2, 3020, cuGLCtxCreate_v2) \
  X(cuGLGetDevices, cuGLGetDevices, 4010, cuGLGetDevices) \
  X(cuGLGetDevices, cuGLGetDevices_v2, 6050, cuGLGetDevices_v2) \
  X(cuGLInit, cuGLInit, 2000, cuGLInit) \
  X(cuGLMapBufferObject, cuGLMapBufferObject, 2000, cuGLMapBufferObject) \
  X(cuGLMapBufferObject, cuGLMapBufferObject_v2, 3020, cuGLMapBufferObject_v2_ptds) \
  X(cuGLMapBufferObjectAsync, cuGLMapBufferObjectAsync, 2030, cuGLMapBufferObjectAsync) \
  X(cuGLMapBufferObjectAsync, cuGLMapBufferObjectAsync_v2, 3020, cuGLMapBufferObjectAsync_v2_ptsz) \
  X(cuGLRegisterBufferObject, cuGLRegisterBufferObject, 2000, cuGLRegisterBufferObject) \
  X(cuGLSetBufferObjectMapFlags, cuGLSetBufferObjectMapFlags, 2030, cuGLSetBufferObjectMapFlags) \
  X(cuGLUnmapBufferObject, cuGLUnmapBufferObject, 2000, cuGLUnmapBufferObject) \
  X(cuGLUnmapBufferObjectAsync, cuGLUnmapBufferObjectAsync, 2030, cuGLUnmapBufferObjectAsync) \
  X(cuGLUnregisterBufferObject, cuGLUnregisterBufferObject, 2000, cuGLUnregisterBufferObject) \
  X(cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070, cuGraphAddBatchMemOpNode) \
  X(cuGraphAddDependencies, cuGraphAddDependencies_v2, 12030, cuGraphAddDependencies_v2) \
  X(cuGraphAddExternalSemaphoresSignalNode, cuGraphAddExternalSemaphoresSignalNode, 11020, cuGraphAddExternalSemaphoresSignalNode) \
  X(cuGraphAddExternalSemaphoresWaitNode, cuGraphAddExternalSemaphoresWaitNode, 11020, cuGraphAddExternalSemaphoresWaitNode) \
  X(cuGraphAddNode, cuGraphAddNode_v2, 12030, cuGraphAddNode_v2) \
  X(cuGraphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeGetParams, 11070, cuGraphBatchMemOpNodeGetParams) \
  X(cuGraphBatchMemOpNodeSetParams, cuGraphBatchMemOpNodeSetParams, 11070, cuGraphBatchMemOpNodeSetParams) \
  X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, cuGraphChildGraphNodeGetGraph) \
  X(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate) \
  X(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, 11010, cuGraphEventRecordNodeGetEvent) \
  X(cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010, cuGraphEventRecordNodeSetEvent) \
  X(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, 11010, cuGraphEventWaitNodeGetEvent) \
  X(cuGraphEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent, 11010, cuGraphEventWaitNodeSetEvent) \
  X(cuGraphExecBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, 11070, cuGraphExecBatchMemOpNodeSetParams) \
  X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010, cuGraphExecChildGraphNodeSetParams) \
  X(cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010, cuGraphExecEventRecordNodeSetEvent) \
  X(cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010, cuGraphExecEventWaitNodeSetEvent) \
  X(cuGraphExecExternalSemaphoresSignalNodeSetParams, cuGraphExecExternalSemaphoresSignalNodeSetParams, 11020, cuGraphExecExternalSemaphoresSignalNodeSetParams) \
  X(cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecExternalSemaphoresWaitNodeSetParams, 11020, cuGraphExecExternalSemaphoresWaitNodeSetParams) \
  X(cuGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams, 10020, cuGraphExecHostNodeSetParams) \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000, cuGraphExecKernelNodeSetParams_v2) \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, cuGraphExecMemcpyNodeSetParams) \
  X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020, cuGraphExecMemsetNodeSetParams) \
  X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, cuGraphExecNodeSetParams) \
  X(cuGraphExternalSemaphoresSignalNodeGetParams, cuGraphExternalSemaphoresSignalNodeGetParams, 11020, cuGraphExternalSemaphoresSignalNodeGetParams) \
  X(cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresSignalNodeSetParams, 11020, cuGraphExternalSemaphoresSignalNodeSetParams) \
  X(cuGraphExternalSemaphoresWaitNodeGetParams, cuGraphExternalSemaphoresWaitNodeGetParams, 11020, cuGraphExternalSemaphoresWaitNodeGetParams) \
  X(cuGraphExternalSemaphoresWaitNodeSetParams, cuGraphExternalSemaphoresWaitNodeSetParams, 11020, cuGraphExternalSemaphoresWaitNodeSetParams) \
  X(cuGraphGetEdges, cuGraphGetEdges_v2, 12030, cuGraphGetEdges_v2) \
  X(cuGraphHostNodeGetParams, cuGraphHostNodeGetParams, 10000, cuGraphHostNodeGetParams) \
  X(cuGraphHostNodeSetParams, cuGraphHostNodeSetParams, 10000, cuGraphHostNodeSetParams) \
  X(cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeCopyAttributes, 11000, cuGraphKernelNodeCopyAttributes) \
  X(cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000, cuGraphKernelNodeGetAttribute) \
  X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, 12000, cuGraphKernelNodeGetParams_v2) \
  X(cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000, cuGraphKernelNodeSetAttribute) \
  X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, 12000, cuGraphKernelNodeSetParams_v2) \
  X(cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040, cuGraphMemAllocNodeGetParams) \
  X(cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams) \
  X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000, cuGraphMemcpyNodeGetParams) \
  X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000, cuGraphMemcpyNodeSetParams) \
  X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams) \
  X(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000, cuGraphMemsetNodeSetParams) \
  X(cuGraphNodeFindInClone, cuGraphNodeFindInClone, 10000, cuGraphNodeFindInClone) \
  X(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies) \
  X(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, 12030, cuGraphNodeGetDependencies_v2) \
  X(cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes, 10000, cuGraphNodeGetDependentNodes) \
  X(cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes_v2, 12030, cuGraphNodeGetDependentNodes_v2) \
  X(cuGraphNodeGetEnabled, cuGraphNodeGetEnabled, 11060, cuGraphNodeGetEnabled) \
  X(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 11060, cuGraphNodeSetEnabled) \
  X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, cuGraphNodeSetParams) \
  X(cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject) \
  X(cuGraphRemoveDependencies, cuGraphRemoveDependencies, 10000, cuGraphRemoveDependencies) \
  X(cuGraphRemoveDependencies, cuGraphRemoveDependencies_v2, 12030, cuGraphRemoveDependencies_v2) \
  X(cuGraphicsEGLRegisterImage, cuGraphicsEGLRegisterImage, 7000, cuGraphicsEGLRegisterImage) \
  X(cuGraphicsGLRegisterBuffer, cuGraphicsGLRegisterBuffer, 3000, cuGraphicsGLRegisterBuffer) \
  X(cuGraphicsGLRegisterImage, cuGraphicsGLRegisterImage, 3000, cuGraphicsGLRegisterImage) \
  X(cuGraphicsMapResources, cuGraphicsMapResources, 3000, cuGraphicsMapResources_ptsz) \
  X(cuGraphicsResourceGetMappedEglFrame, cuGraphicsResourceGetMappedEglFrame, 7000, cuGraphicsResourceGetMappedEglFrame) \
  X(cuGraphicsResourceGetMappedMipmappedArray, cuGraphicsResourceGetMappedMipmappedArray, 5000, cuGraphicsResourceGetMappedMipmappedArray) \
  X(cuGraphicsResourceGetMappedPointer, cuGraphicsResourceGetMappedPointer, 3000, cuGraphicsResourceGetMappedPointer) \
  X(cuGraphicsResourceGetMappedPointer, cuGraphicsResourceGetMappedPointer_v2, 3020, cuGraphicsResourceGetMappedPointer_v2) \
  X(cuGraphicsResourceSetMapFlags, cuGraphicsResourceSetMapFlags, 3000, cuGraphicsResourceSetMapFlags) \
  X(cuGraphicsResourceSetMapFlags, cuGraphicsResourceSetMapFlags_v2, 6050, cuGraphicsResourceSetMapFlags_v2) \
  X(cuGraphicsSubResourceGetMappedArray, cuGraphicsSubResourceGetMappedArray, 3000, cuGraphicsSubResourceGetMappedArray) \
  X(cuGraphicsUnmapResources, cuGraphicsUnmapResources, 3000, cuGraphicsUnmapResources_ptsz) \
  X(cuGraphicsUnregisterResource, cuGraphicsUnregisterResource, 3000, cuGraphicsUnregisterResource) \
  X(cuGraphicsVDPAURegisterOutputSurface, cuGraphicsVDPAURegisterOutputSurface, 3010, cuGraphicsVDPAURegisterOutputSurface) \
  X(cuGraphicsVDPAURegisterVideoSurface, cuGraphicsVDPAURegisterVideoSurface, 3010, cuGraphicsVDPAURegisterVideoSurface) \
  X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, cuGreenCtxDestroy) \
  X(cuGreenCtxGetDevResource, cuGreenCtxGetDevResource, 12040, cuGreenCtxGetDevResource) \
  X(cuGreenCtxRecordEvent, cuGreenCtxRecordEvent, 12040, cuGreenCtxRecordEvent) \
  X(cuGreenCtxWaitEvent, cuGreenCtxWaitEvent, 12040, cuGreenCtxWaitEvent) \
  X(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, cuIpcOpenMemHandle) \
  X(cuMemAdvise, cuMemAdvise_v2, 12020, cuMemAdvise_v2) \
  X(cuMemAlloc, cuMemAlloc, 2000, cuMemAlloc) \
  X(cuMemAllocHost, cuMemAllocHost, 2000, cuMemAllocHost) \
  X(cuMemAllocPitch, cuMemAllocPitch, 2000, cuMemAllocPitch) \
  X(cuMemFree, cuMemFree, 2000, cuMemFree) \
  X(cuMemGetAddressRange, cuMemGetAddressRange, 2000, cuMemGetAddressRange) \
  X(cuMemGetInfo, cuMemGetInfo, 2000, cuMemGetInfo) \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer, 2020, cuMemHostGetDevicePointer) \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, 12020, cuMemPrefetchAsync_v2_ptsz) \
  X(cuMemcpy2D, cuMemcpy2D, 2000, cuMemcpy2D) \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync, 2000, cuMemcpy2DAsync) \
  X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned, 2000, cuMemcpy2DUnaligned) \
  X(cuMemcpy3D, cuMemcpy3D, 2000, cuMemcpy3D) \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync, 2000, cuMemcpy3DAsync) \
  X(cuMemcpyAtoA, cuMemcpyAtoA, 2000, cuMemcpyAtoA) \
  X(cuMemcpyAtoD, cuMemcpyAtoD, 2000, cuMemcpyAtoD) \
  X(cuMemcpyAtoH, cuMemcpyAtoH, 2000, cuMemcpyAtoH) \
  X(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync, 2000, cuMemcpyAtoHAsync) \
  X(cuMemcpyDtoA, cuMemcpyDtoA, 2000, cuMemcpyDtoA) \
  X(cuMemcpyDtoD, cuMemcpyDtoD, 2000, cuMemcpyDtoD) \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync, 3000, cuMemcpyDtoDAsync) \
  X(cuMemcpyDtoH, cuMemcpyDtoH, 2000, cuMemcpyDtoH) \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync, 2000, cuMemcpyDtoHAsync) \
  X(cuMemcpyHtoA, cuMemcpyHtoA, 2000, cuMemcpyHtoA) \
  X(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync, 2000, cuMemcpyHtoAAsync) \
  X(cuMemcpyHtoD, cuMemcpyHtoD, 2000, cuMemcpyHtoD) \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync, 2000, cuMemcpyHtoDAsync) \
  X(cuMemsetD16, cuMemsetD16, 2000, cuMemsetD16) \
  X(cuMemsetD2D16, cuMemsetD2D16, 2000, cuMemsetD2D16) \
  X(cuMemsetD2D32, cuMemsetD2D32, 2000, cuMemsetD2D32) \
  X(cuMemsetD2D8, cuMemsetD2D8, 2000, cuMemsetD2D8) \
  X(cuMemsetD32, cuMemsetD32, 2000, cuMemsetD32) \
  X(cuMemsetD8, cuMemsetD8, 2000, cuMemsetD8) \
  X(cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements, 11060, cuMipmappedArrayGetMemoryRequirements) \
  X(cuMipmappedArrayGetSparseProperties, cuMipmappedArrayGetSparseProperties, 11010, cuMipmappedArrayGetSparseProperties) \
  X(cuModuleGetGlobal, cuModuleGetGlobal, 2000, cuModuleGetGlobal) \
  X(cuMulticastAddDevice, cuMulticastAddDevice, 12010, cuMulticastAddDevice) \
  X(cuMulticastBindAddr, cuMulticastBindAddr, 12010, cuMulticastBindAddr) \
  X(cuMulticastBindMem, cuMulticastBindMem, 12010, cuMulticastBindMem) \
  X(cuMulticastGetGranularity, cuMulticastGetGranularity, 12010, cuMulticastGetGranularity) \
  X(cuMulticastUnbind, cuMulticastUnbind, 12010, cuMulticastUnbind) \
  X(cuParamSetTexRef, cuParamSetTexRef, 2000, cuParamSetTexRef) \
  X(cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000, cuSignalExternalSemaphoresAsync_ptsz) \
  X(cuStreamBatchMemOp, cuStreamBatchMemOp, 8000, cuStreamBatchMemOp_ptsz) \
  X(cuStreamDestroy, cuStreamDestroy, 2000, cuStreamDestroy) \
  X(cuStreamGetGreenCtx, cuStreamGetGreenCtx, 12040, cuStreamGetGreenCtx) \
  X(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_v2, 12030, cuStreamUpdateCaptureDependencies_v2_ptsz) \
  X(cuSurfObjectGetResourceDesc, cuSurfObjectGetResourceDesc, 5000, cuSurfObjectGetResourceDesc) \
  X(cuSurfRefGetArray, cuSurfRefGetArray, 3000, cuSurfRefGetArray) \
  X(cuSurfRefSetArray, cuSurfRefSetArray, 3000, cuSurfRefSetArray) \
  X(cuTexObjectGetResourceDesc, cuTexObjectGetResourceDesc, 5000, cuTexObjectGetResourceDesc) \
  X(cuTexObjectGetResourceViewDesc, cuTexObjectGetResourceViewDesc, 5000, cuTexObjectGetResourceViewDesc) \
  X(cuTexObjectGetTextureDesc, cuTexObjectGetTextureDesc, 5000, cuTexObjectGetTextureDesc) \
  X(cuTexRefCreate, cuTexRefCreate, 2000, cuTexRefCreate) \
  X(cuTexRefDestroy, cuTexRefDestroy, 2000, cuTexRefDestroy) \
  X(cuTexRefGetAddress, cuTexRefGetAddress, 2000, cuTexRefGetAddress) \
  X(cuTexRefGetAddress, cuTexRefGetAddress_v2, 3020, cuTexRefGetAddress_v2) \
  X(cuTexRefGetAddressMode, cuTexRefGetAddressMode, 2000, cuTexRefGetAddressMode) \
  X(cuTexRefGetArray, cuTexRefGetArray, 2000, cuTexRefGetArray) \
  X(cuTexRefGetBorderColor, cuTexRefGetBorderColor, 8000, cuTexRefGetBorderColor) \
  X(cuTexRefGetFilterMode, cuTexRefGetFilterMode, 2000, cuTexRefGetFilterMode) \
  X(cuTexRefGetFlags, cuTexRefGetFlags, 2000, cuTexRefGetFlags) \
  X(cuTexRefGetFormat, cuTexRefGetFormat, 2000, cuTexRefGetFormat) \
  X(cuTexRefGetMaxAnisotropy, cuTexRefGetMaxAnisotropy, 5000, cuTexRefGetMaxAnisotropy) \
  X(cuTexRefGetMipmapFilterMode, cuTexRefGetMipmapFilterMode, 5000, cuTexRefGetMipmapFilterMode) \
  X(cuTexRefGetMipmapLevelBias, cuTexRefGetMipmapLevelBias, 5000, cuTexRefGetMipmapLevelBias) \
  X(cuTexRefGetMipmapLevelClamp, cuTexRefGetMipmapLevelClamp, 5000, cuTexRefGetMipmapLevelClamp) \
  X(cuTexRefGetMipmappedArray, cuTexRefGetMipmappedArray, 5000, cuTexRefGetMipmappedArray) \
  X(cuTexRefSetAddress, cuTexRefSetAddress, 2000, cuTexRefSetAddress) \
  X(cuTexRefSetAddress, cuTexRefSetAddress_v2, 3020, cuTexRefSetAddress_v2) \
  X(cuTexRefSetAddress2D, cuTexRefSetAddress2D, 2020, cuTexRefSetAddress2D) \
  X(cuTexRefSetAddress2D, cuTexRefSetAddress2D_v2, 3020, cuTexRefSetAddress2D_v2) \
  X(cuTexRefSetAddress2D, cuTexRefSetAddress2D_v3, 4010, cuTexRefSetAddress2D_v3) \
  X(cuTexRefSetAddressMode, cuTexRefSetAddressMode, 2000, cuTexRefSetAddressMode) \
  X(cuTexRefSetArray, cuTexRefSetArray, 2000, cuTexRefSetArray) \
  X(cuTexRefSetBorderColor, cuTexRefSetBorderColor, 8000, cuTexRefSetBorderColor) \
  X(cuTexRefSetFilterMode, cuTexRefSetFilterMode, 2000, cuTexRefSetFilterMode) \
  X(cuTexRefSetFlags, cuTexRefSetFlags, 2000, cuTexRefSetFlags) \
  X(cuTexRefSetFormat, cuTexRefSetFormat, 2000, cuTexRefSetFormat) \
  X(cuTexRefSetMaxAnisotropy, cuTexRefSetMaxAnisotropy, 5000, cuTexRefSetMaxAnisotropy) \
  X(cuTexRefSetMipmapFilterMode, cuTexRefSetMipmapFilterMode, 5000, cuTexRefSetMipmapFilterMode) \
  X(cuTexRefSetMipmapLevelBias, cuTexRefSetMipmapLevelBias, 5000, cuTexRefSetMipmapLevelBias) \
  X(cuTexRefSetMipmapLevelClamp, cuTexRefSetMipmapLevelClamp, 5000, cuTexRefSetMipmapLevelClamp) \
  X(cuTexRefSetMipmappedArray, cuTexRefSetMipmappedArray, 5000, cuTexRefSetMipmappedArray) \
  X(cuUserObjectRetain, cuUserObjectRetain, 11030, cuUserObjectRetain) \
  X(cuVDPAUCtxCreate, cuVDPAUCtxCreate, 3010, cuVDPAUCtxCreate) \
  X(cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2, 3020, cuVDPAUCtxCreate_v2) \
  X(cuVDPAUGetDevice, cuVDPAUGetDevice, 3010, cuVDPAUGetDevice) \
  X(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000, cuWaitExternalSemaphoresAsync_ptsz)
