// Chinese for what the scheduler says of candidates and of what waits. The
// contract carries these sentences in English; one that is unknown here is shown
// in the platform's own words. reasons.test.ts takes those of centers from what
// internal/scheduler/place is tested by, so that a sentence that is changed there
// fails here.

/** Sentences and their Chinese. {name} stands for words that are kept, {name…} for a sentence of its own. */
const SENTENCES: ReadonlyArray<readonly [english: string, chinese: string]> = [
  ["is draining and takes no new work", "正在排空，不接受新工作"],
  ["is draining and takes no new work: {why…}", "正在排空，不接受新工作：{why}"],
  ["is not available", "不可用"],
  ["is not available: {why…}", "不可用：{why}"],
  ["has an unknown status", "状态未知"],
  ["has an unknown status: {why…}", "状态未知：{why}"],
  ['has status "{status}"', "状态为“{status}”"],
  ["an operator took it out of use", "已由运营人员停用"],
  ["it has not been heard of for {time}", "已有 {time} 未收到其消息"],
  ["is not one of those named: {names}", "不在指定范围内：{names}"],
  ["is excluded", "已被排除"],
  ["is excluded: {why…}", "已被排除：{why}"],
  ["replica {replica} failed there: {why…}", "副本 {replica} 曾在此失败：{why}"],
  [
    "it refused the like {count} times, last at {last} ({why}); it is tried again from {until}",
    "曾 {count} 次拒绝同类作业，最近一次在 {last}（{why}）；{until} 起再试",
  ],
  ["lies in region unknown, wanted {regions}", "所在区域未知，要求 {regions}"],
  ["lies in region {region}, wanted {regions}", "位于区域 {region}，要求 {regions}"],
  ["has security grade {grade}, at least {least} wanted", "安全等级为 {grade}，要求不低于 {least}"],
  ["has no {key}, wanted {value}", "没有 {key}，要求 {value}"],
  ["has {key} {got}, wanted {value}", "{key} 为 {got}，要求 {value}"],
  ["was not asked whether it meets the task's expression", "未判断是否满足任务的表达式"],
  ["does not offer specification {spec}", "不提供资源规格 {spec}"],
  ["does not have image {image}", "没有镜像 {image}"],
  ["states no price, at most {limit} wanted", "未标明价格，要求不高于 {limit}"],
  ["costs {price}, at most {limit} wanted", "价格为 {price}，要求不高于 {limit}"],
  [
    "holds {have} of dataset {dataset}, which must not move ({all})",
    "持有数据集 {dataset} 的 {have}，该数据集不得迁移（共 {all}）",
  ],
  ["its {target} is not known, at most {limit} required", "{target} 未知，要求不高于 {limit}"],
  ["its {target} is not known, at least {limit} required", "{target} 未知，要求不低于 {limit}"],
  ["has {target} {got}, at most {limit} required", "{target} 为 {got}，要求不高于 {limit}"],
  ["has {target} {got}, at least {limit} required", "{target} 为 {got}，要求不低于 {limit}"],
  ["wants 1 package of {spec}, {idle} of {all} idle", "需要 1 份 {spec}，{all} 份中空闲 {idle} 份"],
  [
    "wants {amount}, {free} of {all} free, {held} of it held for {works}",
    "需要 {amount}，共 {all}，空闲 {free}，其中 {held} 已为 {works} 保留",
  ],
  ["wants {amount}, {free} of {all} free", "需要 {amount}，共 {all}，空闲 {free}"],
  ["reports no free capacity", "未报告空闲容量"],
  [
    "wants {slice} on {count} of its devices, {found} of {all} have that free",
    "需要 {count} 个设备各有 {slice}，{all} 个中有 {found} 个满足",
  ],
  ["has no {label}, over which rule {rule} counts", "没有规则 {rule} 所依据的 {label}"],
  [
    "{place}has {count} replicas of {whose…}, the place with the fewest {least}: one more would be more than {skew} ahead",
    "{place}已有 {whose} 的 {count} 个副本，最少的一处有 {least} 个：再加一个将超出 {skew} 个以上",
  ],
  [
    "{place}has 1 replica of {whose…}, the place with the fewest {least}: one more would be more than {skew} ahead",
    "{place}已有 {whose} 的 1 个副本，最少的一处有 {least} 个：再加一个将超出 {skew} 个以上",
  ],
  [
    "{place}has {count} replicas of {whose…}, from which it is to be apart",
    "{place}已有 {whose} 的 {count} 个副本，要求与其分开",
  ],
  ["{place}has 1 replica of {whose…}, from which it is to be apart", "{place}已有 {whose} 的 1 个副本，要求与其分开"],
  [
    "has to wait for a first replica of {whose…}, with which it is to be",
    "须等待 {whose} 的第一个副本，要求与其放在一起",
  ],
  ["{place}has no replica of {whose…}, with which it is to be", "{place}没有 {whose} 的副本，要求与其放在一起"],
  ["the work itself", "该作业自身"],
  ["scores {score} by {policy}, at least {least} wanted", "策略 {policy} 的得分为 {score}，要求不低于 {least}"],
  ["there is no center", "没有任何中心"],
  [
    "none of {all} centers fits ({counts}); closest is {center}: {why…}",
    "{all} 个中心均不满足（{counts}）；最接近的是 {center}：{why}",
  ],
  [
    "the only center does not fit ({counts}); closest is {center}: {why…}",
    "唯一的中心不满足（{counts}）；{center}：{why}",
  ],
  [
    "{fit} of {all} centers fit, none by rules and least scores; best is {center}, which {why…}",
    "{all} 个中心中有 {fit} 个满足，但受规则和最低得分限制均不可选；最好的是 {center}：{why}",
  ],
  [
    "{fit} of {all} centers fits, none by rules and least scores; best is {center}, which {why…}",
    "{all} 个中心中有 {fit} 个满足，但受规则和最低得分限制均不可选；最好的是 {center}：{why}",
  ],
  [
    "all or none of {total} replicas: with {done} placed, task {task} finds no room; {why…}",
    "{total} 个副本须同时放置：已放置 {done} 个时，任务 {task} 没有空间；{why}",
  ],
  [
    "all or none of {total} replicas: there is room for {room} of the {count} of task {task}; {why…}",
    "{total} 个副本须同时放置：任务 {task} 的 {count} 个副本只有 {room} 个的空间；{why}",
  ],
  [
    "all or none of {total} replicas: there is room for {room} of the {count} of task {task}",
    "{total} 个副本须同时放置：任务 {task} 的 {count} 个副本只有 {room} 个的空间",
  ],
  ["waits for its turn in the queue; center {center} would be chosen now", "正在排队；现在会选择中心 {center}"],
  ["waits: {why…}", "等待：{why}"],
  ["is not placed while the job is paused", "作业暂停期间不放置"],
  ["waits for its shares of the accelerator pool: {why…}", "等待其加速卡资源池份额：{why}"],
  ["others of its gang: {why…}", "同组的其他副本在等待：{why}"],
  ["others of its tenant wait for such shares before it", "同租户的其他副本先等待这样的份额"],
  ["no device that is allowed has room now", "允许使用的设备目前都没有空间"],
  ["the pool cannot be asked now", "目前无法向资源池申请"],
  ["the pool has no {count} such shares at once", "资源池无法同时提供 {count} 份这样的份额"],
  ["its slices are not placed yet", "其切片尚未放置"],
  ["no pool node on its machine lends such shares now", "其所在机器上目前没有池节点可借出这样的份额"],
  ["pool node {node} does not answer", "池节点 {node} 没有应答"],
  ["its shares of the accelerator pool ended: {why…}", "其加速卡资源池份额已结束：{why}"],
  ["pool node {node} is gone", "池节点 {node} 已失去"],
  ["the pool node stops", "池节点停止运行"],
  ["their node or device went before it had them", "尚未取得，其节点或设备已失去"],
  ["it was released", "已被释放"],
  [
    "group {group} has too little of its quota left: {compute}% and {memory} MiB are lent",
    "资源组 {group} 的配额剩余不足：已借出 {compute}% 和 {memory} MiB",
  ],
  ["{count} slices wait already, which is the most", "已有 {count} 个切片在等待，达到上限"],
  [
    "preempted for job {job} of tenant {tenant}, which has priority {n} and waits for these accelerators",
    "为租户 {tenant} 的作业 {job} 抢占：其优先级为 {n}，正在等待这些加速卡",
  ],
  [
    "preempted for job {job}, which waits for these accelerators as this one does for others: all of its gang have theirs, or none",
    "为作业 {job} 抢占：两者互相等待对方的加速卡；同组的副本须全部得到份额，或都不占用",
  ],
  [
    "preempted for job {job} of tenant {tenant}, which has priority {n}",
    "为租户 {tenant} 的作业 {job} 抢占：其优先级为 {n}",
  ],
  [
    "preempted for job {job} of tenant {tenant}, which is below what is guaranteed to it",
    "为租户 {tenant} 的作业 {job} 抢占：其资源低于所保证的份额",
  ],
  ["its time has not come", "尚未到时间"],
  ["room is kept for it at {site} when what runs there has ended", "{site} 上的工作结束后，将为其保留空间"],
  ["room is kept for it at {count} places when what runs there has ended", "{count} 处的工作结束后，将为其保留空间"],
  [
    "tenant {tenant} uses {used} of {resource} and may use {limit}; {more} more are asked for",
    "租户 {tenant} 已用 {resource} {used}，上限 {limit}，还要 {more}",
  ],
  ["it would run into what is kept for others", "将与为其他作业保留的资源冲突"],
  ["it would run into {window}", "将与 {window} 冲突"],
  ["what is free there is kept for work that waits longer, or is reserved", "空闲部分已为等待更久的作业保留或已被预留"],
  ["no place has room for it", "没有任何地方有足够空间"],
  ["nothing has room for it", "没有任何地方有足够空间"],
  ["waits until job {job}, which it shall be near to, has a place", "等待作业 {job} 有位置后放在其附近"],
  ["the job is paused", "作业已暂停"],
  ["what is stated", "所声明的时长"],
  ["the last {count} runs of the same name, user and request", "同名、同用户、同样申请的最近 {count} 次运行"],
  ["the last {count} runs of the same user and request", "同用户、同样申请的最近 {count} 次运行"],
  ["the last {count} runs of the same user", "同用户的最近 {count} 次运行"],
  ["the last {count} runs of the same tenant and request", "同租户、同样申请的最近 {count} 次运行"],
  ["the last {count} runs of the same request", "同样申请的最近 {count} 次运行"],
  ["the last {count} all runs", "最近 {count} 次运行"],
  [
    "the last {count} runs of the same user, as a part of what was stated",
    "同用户的最近 {count} 次运行，按与所声明时长之比",
  ],
  ["the last {count} all runs, as a part of what was stated", "最近 {count} 次运行，按与所声明时长之比"],
  ["when shares of the accelerator pool end is not known", "加速卡资源池的份额何时结束尚不可知"],
  ["its time has not come; whether there is room then is not known", "尚未到时间；届时是否有空间尚不可知"],
  ["what it waits for has no certain time", "所等待的事没有确定的时间"],
  ["its resource specification no longer exists", "其资源规格已不存在"],
  ["the begin of its reservation", "其预留的开始时间"],
  ["it is not a matter of room: no center meets what it asks for", "与空间无关：没有中心满足其要求"],
  [
    "the next period of budget {budget}; sooner if what runs costs less than expected",
    "预算 {budget} 的下一周期；若运行中的作业花费低于预期则更早",
  ],
  [
    "budget {budget} has no other period: it starts if more is budgeted, or what runs costs less than expected",
    "预算 {budget} 没有下一周期：增加预算或运行中的作业花费低于预期时开始",
  ],
  [
    "room is kept for it: the expected ends of what runs, and what it takes then",
    "已为其保留空间：按运行中作业的预计结束时间及其所需",
  ],
  ["the expected ends of what runs at the centers it can go to", "可去的中心上运行中作业的预计结束时间"],
  [
    "how many of its tenant go before it, and how fast its tenant's work started lately",
    "同租户排在其前的作业数，以及该租户作业近来的启动速度",
  ],
  [
    "the process that schedules does not answer; only what centers have is looked at",
    "调度进程没有应答；只看了各中心的资源",
  ],
  ["it is not in the queue: others that wait are not looked at", "不在队列中：未考虑其他等待的作业"],
  [
    "the expected ends of what runs are not known, and too little of its tenant started lately",
    "运行中作业的预计结束时间不可知，且该租户近来启动的作业过少",
  ],
];

/** What keeps centers out, as {counts} names it. */
const FILTERS: Readonly<Record<string, string>> = {
  status: "状态",
  pinned: "指定中心",
  excluded: "排除",
  region: "区域",
  security: "安全等级",
  attributes: "属性",
  expression: "表达式",
  spec: "资源规格",
  image: "镜像",
  price: "价格",
  data: "数据",
  qos: "服务质量",
  capacity: "容量",
};

const HOLE = /\{(\w+)(…?)\}/g;
const RULES = SENTENCES.map(([english, chinese]) => {
  const holes = [...english.matchAll(HOLE)].map((m) => ({ name: m[1], sentence: m[2] !== "" }));
  const text = english
    .split(HOLE)
    .filter((_, i) => i % 3 === 0)
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const wild = holes.map((h) => (h.name === "place" ? "((?:\\S+ \\S+ )?)" : h.sentence ? "(.+)" : "(.+?)"));
  const pattern = text.map((part, i) => part + (wild[i] ?? "")).join("");
  return { pattern: new RegExp(`^${pattern}$`, "s"), holes, chinese };
});

function inChinese(text: string): string | undefined {
  for (const { pattern, holes, chinese } of RULES) {
    const found = pattern.exec(text);
    if (!found || holes.some((h, i) => !h.sentence && found[i + 1]?.includes("; "))) continue;
    return holes.reduce((out, hole, i) => {
      let words = found[i + 1] ?? "";
      if (hole.name === "counts")
        words = words.replace(/[a-z]+(?=: )/g, (id) => FILTERS[id] ?? id).replaceAll(", ", "、");
      return out.replace(`{${hole.name}}`, () => (hole.sentence ? (inChinese(words) ?? words) : words));
    }, chinese);
  }
  const parts = text.split("; ");
  return parts.length > 1 ? parts.map((p) => inChinese(p) ?? p).join("；") : undefined;
}

/** What the scheduler says, in the console's language where there are words for it. */
export function said(text: string, language: string): string {
  return (language === "zh" ? inChinese(text) : undefined) ?? text;
}
