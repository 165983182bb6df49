// Chinese descriptions of the built-in scheduling policies. The contract
// carries titles in both languages and descriptions in English only; a policy
// unknown here is described in the platform's own words.
const CHINESE: Readonly<Record<string, string>> = {
  "least-load": "优先选择运行作业较少的候选。",
  "idle-spec": "优先选择所申请资源规格空闲较多的候选。",
  "data-topology": "优先选择在逻辑上靠近同一作业其他副本及其数据的候选。",
  "lowest-price": "优先选择所申请资源规格价格较低的候选。",
  "lowest-energy": "优先选择复制数据与运行的能耗较低的候选（公式 1）。",
  "lowest-carbon": "优先选择能耗（公式 1）按设施开销折算后碳排放较低的候选。",
  "highest-performance": "优先选择就任务的算力类型与精度而言更快的候选。",
  "highest-security": "优先选择安全等级较高的候选。",
  "load-fairness": "优先选择使各候选作业数方差最小的候选。",
  compact: "优先选择放置后空闲份额最小的候选。",
  network: "优先选择带宽较高，时延、抖动和丢包较低的候选。",
  nearest: "优先选择离用户较近的候选。",
  qos: "优先选择满足更多服务质量目标的候选。",
  "data-aware": "优先选择持有数据或能更快取得数据的候选。",
  "compute-type": "优先选择具有任务所需算力类型与精度的候选。",
  "business-fit": "优先选择适合任务业务类型的候选。",
  "lowest-latency": "优先选择与作业来源往返时延较低的候选。",
  "lowest-total-cost": "优先选择运行价格与数据传入费用之和较低的候选。",
  "lowest-transfer-cost": "优先选择传入作业数据费用较低的候选。",
};

/** What a policy prefers, in the console's language where there are words for it. */
export function policyDoc(policy: { policyId: string; doc: string }, language: string): string {
  return (language === "zh" ? CHINESE[policy.policyId] : undefined) ?? policy.doc;
}
