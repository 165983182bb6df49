// Measurements of the platform in memory: a few indicators, and a benchmark
// that takes three seconds.
import { create } from "@bufbuild/protobuf";
import { timestampFromMs, timestampNow } from "@bufbuild/protobuf/wkt";
import type { ConnectRouter } from "@connectrpc/connect";
import {
  Decision,
  Domain,
  IndicatorKind,
  IndicatorSchema,
  type MeasurementRun,
  MeasurementRunSchema,
  MeasurementService,
  type NodeSchedule,
  NodeScheduleSchema,
  Origin,
  RunState,
  Scope,
} from "../gen/yunhe/measurement/v1/measurement_pb";

const TAKES_MS = 3_000;

const INDICATORS = (
  [
    ["compute.cores", "Processor cores", "处理器核数", IndicatorKind.STATIC, Domain.COMPUTE, "cores", ""],
    ["accelerator.peak.fp32", "Peak FP32", "FP32 峰值", IndicatorKind.STATIC, Domain.COMPUTE, "TFLOPS", "FP32"],
    ["accelerator.peak.fp16", "Peak FP16", "FP16 峰值", IndicatorKind.STATIC, Domain.COMPUTE, "TFLOPS", "FP16"],
    ["compute.integer.all", "Integer, all cores", "全核整数运算", IndicatorKind.STATIC, Domain.COMPUTE, "Mop/s", ""],
    ["memory.bandwidth", "Memory bandwidth", "内存带宽", IndicatorKind.STATIC, Domain.COMPUTE, "MB/s", ""],
    ["compute.busy", "Processor busy", "CPU 利用率", IndicatorKind.DYNAMIC, Domain.COMPUTE, "ratio", ""],
    ["service.computing", "Computing", "计算综合指标", IndicatorKind.COMBINED, Domain.COMPUTE, "", ""],
  ] as const
).map(([indicatorId, title, titleZh, kind, domain, unit, precision]) =>
  create(IndicatorSchema, { indicatorId, title, titleZh, kind, domain, unit, precision, source: "fixture" }),
);

const NUMBERS: [id: string, number: number, origin: Origin][] = [
  ["compute.cores", 64, Origin.DECLARED],
  ["accelerator.peak.fp32", 536, Origin.DERIVED],
  ["accelerator.peak.fp16", 7916, Origin.DERIVED],
  ["compute.integer.all", 512_000, Origin.MEASURED],
  ["memory.bandwidth", 320_000, Origin.MEASURED],
  ["compute.busy", 0.42, Origin.MEASURED],
  ["service.computing", 1042, Origin.DERIVED],
];

/** The runs of every center. */
export class MeasurementFixture {
  private runs: MeasurementRun[] = [];
  private schedules = new Map<string, NodeSchedule>();

  private of(centerId: string): MeasurementRun[] {
    const now = Date.now();
    for (const r of this.runs) {
      const begun = Number(r.createdAt?.seconds ?? 0n) * 1000;
      if (r.state !== RunState.RUNNING || now - begun < TAKES_MS) continue;
      r.state = RunState.SUCCEEDED;
      r.endedAt = timestampFromMs(now);
      if (r.scope !== Scope.DEVICES) {
        r.performance = 1042n;
        r.decision = Decision.AWAITED;
      }
    }
    return this.runs.filter((r) => r.aiCenterId === centerId);
  }

  routes() {
    return {
      listIndicators: () => ({ indicators: INDICATORS }),
      getMeasurement: ({ aiCenterId }: { aiCenterId: string }) => {
        const runs = this.of(aiCenterId);
        const used = runs.find((r) => r.decision === Decision.ACCEPTED);
        return {
          aiCenterId,
          performance: used?.performance ?? 900n,
          performanceFrom: used ? "measured" : "declared",
          values: NUMBERS.map(([indicatorId, number, origin]) => ({ indicatorId, number, origin, at: timestampNow() })),
          shares: [
            {
              indicatorId: "compute.integer.all",
              value: 8000,
              reference: 8000,
              weight: 6n,
              score: 1000n,
              perCore: true,
            },
            { indicatorId: "memory.bandwidth", value: 5000, reference: 5000, weight: 4n, score: 1000n, perCore: true },
          ],
          runs,
        };
      },
      compareMeasurements: ({ aiCenterIds }: { aiCenterIds: string[] }) => ({
        aiCenterIds,
        rows: NUMBERS.map(([indicatorId, number, origin]) => ({
          indicatorId,
          values: aiCenterIds.map((_, i) => ({
            known: true,
            number: number * (1 + i / 10),
            ratioPermille: BigInt(1000 + 100 * i),
            origin,
          })),
        })),
      }),
      runMeasurement: ({ aiCenterId, scope }: { aiCenterId: string; scope: Scope }) => {
        const run = create(MeasurementRunSchema, {
          runId: `mrn_${this.runs.length + 1}`,
          aiCenterId,
          scope: scope || Scope.MACHINE,
          state: RunState.RUNNING,
          requestedBy: "admin",
          createdAt: timestampNow(),
        });
        this.runs.unshift(run);
        return run;
      },
      getNodeSchedule: ({ aiCenterId }: { aiCenterId: string }) =>
        this.schedules.get(aiCenterId) ?? create(NodeScheduleSchema, { aiCenterId, atOnce: 1 }),
      updateNodeSchedule: ({ schedule }: { schedule?: NodeSchedule }) => {
        const next = create(NodeScheduleSchema, {
          aiCenterId: schedule?.aiCenterId ?? "",
          intervalHours: schedule?.intervalHours ?? 0,
          atOnce: schedule?.atOnce ?? 1,
          version: (schedule?.version ?? 0n) + 1n,
        });
        this.schedules.set(next.aiCenterId, next);
        return next;
      },
      listMeasuredNodes: ({ aiCenterId }: { aiCenterId: string }) => ({
        nodes: [
          {
            node: "n1",
            measuredAt: timestampNow(),
            performance: 1042n,
            ...(this.schedules.get(aiCenterId)?.intervalHours
              ? { dueAt: timestampFromMs(Date.now() + 24 * 3600_000) }
              : {}),
          },
          { node: "n2", failures: 1, message: "the log has no report" },
        ],
      }),
      decideMeasurementRun: ({ runId, accept }: { runId: string; accept: boolean }) => {
        const run = this.runs.find((r) => r.runId === runId) ?? create(MeasurementRunSchema, { runId });
        run.decision = accept ? Decision.ACCEPTED : Decision.REJECTED;
        return run;
      },
    };
  }

  mount(router: ConnectRouter): void {
    router.service(MeasurementService, this.routes());
  }
}
