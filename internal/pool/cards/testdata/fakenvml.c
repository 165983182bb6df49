/* fakenvml plays libnvidia-ml.so.1 for tests: two cards that are not there. The
 * names and structures are those of nvml.h of CUDA 12, declared anew. What it is
 * compiled with decides how it fails: CRASH, HANG, ASLEEP (no driver). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fake *nvmlDevice_t;
typedef struct fake_set *nvmlEventSet_t;
typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;
typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
	unsigned int gpu, memory;
} nvmlUtilization_t;
typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

enum { NOT_SUPPORTED = 3, NO_PERMISSION = 4, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, INVALID = 2 };

struct fake {
	int index;
	unsigned limit;
	unsigned long long energy;
};
static struct fake cards[2] = {{0, 350000, 1000}, {1, 350000, 5000}};
static int registered, told;

int nvmlInit_v2(void) {
	printf("a library may print what it likes\n");
#ifdef ASLEEP
	return DRIVER_NOT_LOADED;
#endif
	return 0;
}
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : code == NO_PERMISSION ? "Insufficient Permissions" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned *n) {
#ifdef CRASH
	fprintf(stderr, "fakenvml crashes\n");
	abort();
#endif
#ifdef HANG
	for (;;) pause();
#endif
	*n = 2;
	return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) {
	if (i > 1) return INVALID;
	*d = &cards[i];
	return 0;
}
#define ID(d) (d)->index + 2
int nvmlDeviceGetName(nvmlDevice_t d, char *s, unsigned n) { return snprintf(s, n, "FAKE H%d00", d->index + 1) < 0; }
int nvmlDeviceGetUUID(nvmlDevice_t d, char *s, unsigned n) { return snprintf(s, n, "GPU-0%d0%d0%d0%d-0%d0%d-0%d0%d-0%d0%d-0%d0%d0%d0%d0%d0%d", ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d), ID(d)) < 0; }
int nvmlDeviceGetEccMode(nvmlDevice_t d, unsigned *now, unsigned *pending) { return (void)d, *now = *pending = 1, 0; }
/* The second card cannot be divided. */
int nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *now, unsigned *pending) { return d->index ? NOT_SUPPORTED : (*now = *pending = 0, 0); }
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) {
	memset(p, 0, sizeof *p);
	p->domain = 0, p->bus = 0x65 + d->index, p->device = 0;
	snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus);
	return 0;
}
int nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
	m->total = 80ULL << 30, m->used = (unsigned long long)(d->index + 1) << 30, m->free = m->total - m->used;
	return 0;
}
int nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *t) {
	if (sensor != 0) return INVALID;
	*t = 41 + d->index;
	return 0;
}
int nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw) {
	*mw = 90000 + 1000 * d->index;
	return 0;
}
/* The second card has no counter, as those before Volta. */
int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *mj) {
	if (d->index == 1) return NOT_SUPPORTED;
	*mj = d->energy += 500;
	return 0;
}
int nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
	u->gpu = 37 + d->index, u->memory = 5;
	return 0;
}
int nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, unsigned type, unsigned counter, unsigned long long *n) {
	if (type != 1 || counter != 0) return INVALID;
	*n = 3 + d->index;
	return 0;
}
/* The first card's limit is in the file that FAKENVML_LIMIT names, if it does. */
static FILE *file(nvmlDevice_t d, const char *how) {
	const char *path = getenv("FAKENVML_LIMIT");
	return path && !d->index ? fopen(path, how) : NULL;
}
int nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, unsigned *mw) {
	FILE *f = file(d, "re");
	*mw = d->limit;
	if (f && fscanf(f, "%u", mw) != 1) *mw = 0;
	if (f) fclose(f);
	return 0;
}
int nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t d, unsigned *mw) {
	(void)d;
	*mw = 350000;
	return 0;
}
int nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t d, unsigned *least, unsigned *most) {
	(void)d;
	*least = 100000, *most = 400000;
	return 0;
}
int nvmlDeviceSetPowerManagementLimit(nvmlDevice_t d, unsigned mw) {
	if (d->index == 1) return NO_PERMISSION;
	if (mw < 100000 || mw > 400000) return INVALID;
	d->limit = mw;
	FILE *f = file(d, "we");
	if (f) fprintf(f, "%u", mw), fclose(f);
	return 0;
}
int nvmlEventSetCreate(nvmlEventSet_t *s) {
	*s = (nvmlEventSet_t)&registered;
	return 0;
}
int nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long kinds, nvmlEventSet_t s) {
	if (kinds != 8 || s != (nvmlEventSet_t)&registered) return INVALID;
	registered |= 1 << d->index;
	return 0;
}
/* The second card falls off the bus once. */
int nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned ms) {
	if (s != (nvmlEventSet_t)&registered || ms != 0) return INVALID;
	if (!(registered & 2) || told++) return TIMEOUT;
	memset(e, 0, sizeof *e);
	e->device = &cards[1], e->eventType = 8, e->eventData = 79;
	return 0;
}
