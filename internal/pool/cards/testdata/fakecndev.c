/* fakecndev plays libcndev.so for tests: one card. The names and structures are
 * those of version 5 of cndev.h, declared anew. */
#include <stdint.h>
#include <string.h>

typedef struct {
	int version;
	unsigned number;
} cndevCardInfo_t;
typedef struct {
	int version;
	unsigned int subsystemId, deviceId;
	uint16_t vendor, subsystemVendor;
	unsigned int domain, bus, device, function;
	const char *physicalSlot;
	int slotID;
} cndevPCIeInfo_t;
typedef struct {
	int version;
	int64_t physicalMemoryTotal, physicalMemoryUsed, virtualMemoryTotal, virtualMemoryUsed;
} cndevMemoryInfo_t;
typedef struct {
	int version;
	int board, cluster[20], memoryDie[8], chip;
} cndevTemperatureInfo_t;
typedef struct {
	int version;
	int usage, cap, usageDecimal, machine, capDecimal;
	uint16_t thermalDesignPower;
} cndevPowerInfo_t;
typedef struct {
	int version;
	int averageCoreUtilization, coreUtilization[80];
} cndevUtilizationInfo_t;
typedef struct {
	int version;
	uint64_t oneBitError, multipleOneError, multipleError, multipleMultipleError, correctedError, uncorrectedError, totalError, addressForbiddenError;
} cndevECCInfo_t;

enum { UNSUPPORTED_API_VERSION = 3, INVALID_DEVICE_ID = 6, HANDLE = 17 };
#define CHECK(p, d) \
	if ((p)->version != 5) return UNSUPPORTED_API_VERSION; \
	if ((d) != HANDLE) return INVALID_DEVICE_ID; \
	memset(p, 0, sizeof *(p));

int cndevInit(int reserved) { return reserved; }
int cndevGetDeviceCount(cndevCardInfo_t *c) {
	if (c->version != 5) return UNSUPPORTED_API_VERSION;
	c->number = 1;
	return 0;
}
int cndevGetDeviceHandleByIndex(int index, int32_t *d) {
	*d = HANDLE + index;
	return 0;
}
const char *cndevGetCardNameStringByDevId(int32_t d) { return d == HANDLE ? "FAKE MLU370" : "?"; }
int cndevGetPCIeInfo(cndevPCIeInfo_t *p, int32_t d) {
	CHECK(p, d)
	p->vendor = 0xcabc, p->domain = 0, p->bus = 0x3b, p->device = 0x1f, p->function = 1, p->physicalSlot = "3", p->slotID = 3;
	return 0;
}
int cndevGetMemoryUsage(cndevMemoryInfo_t *m, int32_t d) {
	CHECK(m, d)
	m->physicalMemoryTotal = 24576, m->physicalMemoryUsed = 512, m->virtualMemoryTotal = 1, m->virtualMemoryUsed = 1;
	return 0;
}
int cndevGetTemperatureInfo(cndevTemperatureInfo_t *t, int32_t d) {
	CHECK(t, d)
	t->board = 33, t->chip = 44;
	return 0;
}
int cndevGetPowerInfo(cndevPowerInfo_t *p, int32_t d) {
	CHECK(p, d)
	p->usage = 71, p->cap = 150, p->thermalDesignPower = 150;
	return 0;
}
int cndevGetDeviceUtilizationInfo(cndevUtilizationInfo_t *u, int32_t d) {
	CHECK(u, d)
	u->averageCoreUtilization = 12, u->coreUtilization[0] = 99;
	return 0;
}
int cndevGetECCInfo(cndevECCInfo_t *e, int32_t d) {
	CHECK(e, d)
	e->correctedError = 9, e->uncorrectedError = 2, e->totalError = 11;
	return 0;
}
