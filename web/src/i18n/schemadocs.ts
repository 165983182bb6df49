// Chinese words for the fields of configuration schemas. A schema carries its
// words in English only. Titles go by the field's name; descriptions go by the
// English sentence, so that one that was changed is shown as the plug-in has
// it until it is translated anew.
import type { Field } from "../lib/schema";
import type { Language } from ".";

const TITLES: Readonly<Record<string, string>> = {
  account: "账号",
  active_watts_per_cpu: "运行功率增量",
  accounting: "作业记账",
  allow_exec: "允许执行程序",
  any_image: "任意镜像",
  api_version: "API 版本",
  ca_file: "CA 证书文件",
  capacity: "容量上限",
  class: "优先级类",
  concurrent_requests: "并发请求数",
  context: "上下文",
  dir: "目录",
  directory: "工作目录",
  effect: "效果",
  env: "环境变量",
  extended: "扩展资源名",
  extra_labels: "附加标签",
  from: "起始优先级",
  gres: "通用资源",
  image_pull_policy: "镜像拉取策略",
  image_pull_secrets: "镜像拉取凭据名",
  images: "镜像",
  keep_network_open: "保持网络开放",
  key: "键",
  kubeconfig: "kubeconfig 内容",
  kubeconfig_file: "kubeconfig 文件",
  labels: "标签",
  latitude: "纬度",
  longitude: "经度",
  memory: "内存",
  model: "型号",
  models: "加速卡型号",
  name: "名称",
  namespace: "命名空间",
  node_selector: "节点选择",
  operator: "运算符",
  output_dir: "输出目录",
  partitions: "分区",
  password: "密码",
  performance: "算力性能",
  poll_milliseconds: "轮询间隔（毫秒）",
  prefix: "命令前缀",
  price: "价格",
  prices: "价格",
  priority_classes: "优先级类",
  qos: "服务质量",
  quantity: "规格数量",
  region: "区域",
  requests_per_second: "每秒请求数",
  requeue: "重新排队",
  resource: "资源",
  resources: "资源映射",
  run_as_user: "运行用户",
  security_grade: "安全等级",
  service_account: "服务账号",
  setup: "准备命令",
  spec: "资源规格",
  start_patience_seconds: "启动等待（秒）",
  static_watts_per_cpu: "空闲功率",
  timeout_seconds: "超时（秒）",
  token: "令牌",
  token_file: "令牌文件",
  tolerations: "容忍",
  url: "地址",
  user: "用户",
  value: "值",
  vendor: "厂商",
  with: "附带资源",
  // Attributes of registered resources.
  level: "级别",
  managed_compute_types: "管理的算力类型",
  endpoint: "接口地址",
  contact: "联系人",
  extra: "其他信息",
  cloud_platform_type: "云类型",
  availability_zones: "可用区",
  available_resources: "可用资源",
  kind: "种类",
  scale: "规模",
  unit: "单位",
  adapter: "接入方式",
  nodes: "节点数",
  architecture: "架构",
  operating_system: "操作系统",
  chips: "芯片",
  chip_type: "芯片类型",
  chip_arch: "芯片架构",
  chip_model: "芯片型号",
  count: "数量",
  memory_bytes: "内存字节数",
  reason: "原因",
  supply_mode: "供给方式",
  cores: "核数",
  serial_number: "序列号",
  network_type: "网络类型",
  specification: "规格",
  bandwidth_mbps: "带宽（Mbit/s）",
  latency_us: "时延（微秒）",
  technology: "技术",
  endpoints: "连接的资源",
  storage_type: "存储类型",
  capacity_bytes: "容量字节数",
  iops: "每秒读写次数",
  throughput_mbps: "吞吐（Mbit/s）",
  protocol: "协议",
  security_type: "安全类型",
  protects: "保护的资源",
};

const HELP: Readonly<Record<string, string>> = {
  // What every center declares.
  "name of the center, its ID if empty": "计算中心名称，留空则为其 ID",
  "where it is, for example guizhou": "所在区域，例如 guizhou",
  degrees: "度",
  "1 to 5": "1 到 5",
  "power of an idle core": "每个空闲核的功率（瓦）",
  "further power of a busy core": "每个忙碌核另增的功率（瓦）",
  "1000 is the reference machine": "参考机器为 1000",
  "fen per hour by specification; what is not named is not offered": "各资源规格每小时的价格（分），未列出的不提供",
  // The example driver.
  "folder of what it runs": "存放运行内容的目录",
  "bytes that jobs may use, 2 GiB if not given": "作业可用的字节数，未给出时为 2 GiB",
  // Kubernetes.
  "text of a kubeconfig; what it refers to must be in it, not in files":
    "kubeconfig 的内容；引用的凭据须写在其中，不能是文件",
  "absolute path of a kubeconfig, read again when the cluster refuses what it says":
    "kubeconfig 的绝对路径，集群拒绝其凭据时重新读取",
  "context of the kubeconfig, its current one if empty": "kubeconfig 中的上下文，留空则为当前上下文",
  "lets a kubeconfig start the program it names to get credentials": "允许 kubeconfig 启动其指定的程序来获取凭据",
  "where jobs run, yunhe if empty; made if it is not there": "作业所在的命名空间，留空则为 yunhe，不存在时自动创建",
  "of the pods; they get no token of it": "Pod 所用的服务账号，其令牌不会交给 Pod",
  "added to every object made": "添加到创建的每个对象",
  "image reference by image ID; another image ID is refused": "各镜像 ID 对应的镜像引用，其他镜像 ID 会被拒绝",
  "an image ID that is an image reference is used as it is": "镜像 ID 本身是镜像引用时直接使用",
  "Always, IfNotPresent (if empty) or Never": "Always、IfNotPresent（留空时）或 Never",
  "names of secrets in the namespace": "命名空间中凭据的名称",
  "what extended resources count as; looked up before what is built in": "扩展资源对应的平台资源，优先于内置映射",
  "labels of the nodes that belong to this center": "属于该计算中心的节点的标签",
  "taints of nodes that jobs may run on all the same": "作业仍可运行的节点污点",
  "priority class by lowest priority of a job": "按作业最低优先级对应的优先级类",
  "user ID of commands; with it pods keep the restricted security standard. 0: what the image says":
    "命令的用户 ID，设置后 Pod 遵守 restricted 安全标准；0 表示按镜像",
  "makes no network policy for jobs without network": "不为无网络的作业创建网络策略",
  "how long an image may fail to load before the job has failed, 120 if 0":
    "镜像加载失败多久后作业记为失败，0 表示 120",
  "most requests to the API server per second, 500 if 0": "每秒向 API 服务器发出的最多请求数，0 表示 500",
  "most jobs created at a time, 32 if 0": "同时创建的最多作业数，0 表示 32",
  "of the platform, for example gpu, npu, mlu or dcu": "平台的资源名，例如 gpu、npu、mlu 或 dcu",
  "name at the nodes, for example nvidia.com/gpu": "节点上的名称，例如 nvidia.com/gpu",
  "for example NVIDIA": "例如 NVIDIA",
  "if the name says it, for example Ascend910B": "名称所表明的型号，例如 Ascend910B",
  "further resources of each job that asks for it, for slices: for example nvidia.com/gpumem: 8000":
    "申请该资源的作业附带的资源，用于切片，例如 nvidia.com/gpumem: 8000",
  "Equal (if empty) or Exists": "Equal（留空时）或 Exists",
  "NoSchedule, PreferNoSchedule, NoExecute; all if empty": "NoSchedule、PreferNoSchedule 或 NoExecute，留空则为全部",
  "lowest priority, -100 to 100": "最低优先级，-100 到 100",
  "name of a PriorityClass of the cluster": "集群中 PriorityClass 的名称",
  // Slurm.
  "slurmrestd: http://host:6820, https://host, or unix:/path/of/socket":
    "slurmrestd 的地址：http://host:6820、https://host 或 unix:/path/of/socket",
  "whose jobs they are at the cluster; needed with a token": "集群中作业所属的用户，使用令牌时必填",
  "JWT of the user (scontrol token); not together with token_file":
    "用户的 JWT（scontrol token），不能与 token_file 同时使用",
  "file with the JWT, read again whenever it changes": "存放 JWT 的文件，变更后重新读取",
  "certificates (PEM) that https answers are checked against; the machine's if empty":
    "用于校验 https 响应的证书（PEM），留空则用本机的",
  "for example v0.0.38; the newest both sides know if empty": "例如 v0.0.38，留空则为双方都支持的最新版本",
  "how long slurmrestd may take for one answer; 8 if 0, at most 120": "slurmrestd 单次响应的时限，0 表示 8，最多 120",
  "folder at the cluster, on a file system all nodes share, where the user may write: attempts run and keep their output below it":
    "集群中全部节点共享且该用户可写的目录，运行及其输出都放在其下",
  "where this driver's machine sees that folder; without it there are no logs":
    "本驱动所在机器上该目录的路径，缺少则没有日志",
  "account jobs are charged to": "作业计费的账号",
  "quality of service of jobs": "作业的服务质量",
  "partitions jobs may use, the first for specifications of no partition; all, and Slurm's default one, if empty":
    "作业可用的分区，首个用于未指定分区的资源规格；留空则为全部及 Slurm 的默认分区",
  "generic resource by the platform's name: gpu: gpu, or gpu: gpu:h20; gpu: gpu if empty":
    "平台资源名对应的通用资源：gpu: gpu 或 gpu: gpu:h20，留空则为 gpu: gpu",
  "accelerators by their type in Slurm": "Slurm 中各类型对应的加速卡",
  "how images run, by ID; host, programs of the nodes, if empty": "各镜像 ID 的运行方式，留空则为 host（节点上的程序）",
  "lines of bash before every command, for example module load cuda/12":
    "每条命令之前的 bash 行，例如 module load cuda/12",
  "most that jobs of the platform may use in all, by resource: cpu in thousandths, memory in bytes, pieces":
    "平台作业合计可用的上限，按资源：cpu 以千分之一计，memory 以字节计，其余按个数",
  "let Slurm start a preempted job again from its beginning; otherwise it ends as lost":
    "允许 Slurm 从头重启被抢占的作业，否则记为丢失",
  "ask slurmdbd for jobs that slurmctld has dropped; slurmrestd needs its openapi/dbv0.0.N":
    "向 slurmdbd 查询 slurmctld 已清除的作业，slurmrestd 须启用 openapi/dbv0.0.N",
  "pause between two looks at the jobs; 1000 if 0, 100 to 60000": "两次查看作业的间隔，0 表示 1000，可为 100 到 60000",
  // Attributes of registered resources.
  "Level of the platform.": "平台所处的级别。",
  "Kinds of compute the platform manages beneath it.": "平台所管理的算力种类。",
  "Address of its interface.": "其接口的地址。",
  "Who answers for it.": "负责人。",
  "Anything else worth keeping, as text.": "其他值得记录的文本。",
  "Kind of cloud.": "云的种类。",
  "Version of that interface.": "该接口的版本。",
  "Names of its availability zones.": "各可用区的名称。",
  "Kinds of compute on offer and how much of each (S Table 9).": "提供的算力种类及各自数量。",
  "For example cpu, memory, gpu, npu.": "例如 cpu、memory、gpu、npu。",
  "How much, in unit.": "以单位计的数量。",
  "For example cores, bytes, cards; empty: pieces.": "例如 cores、bytes、cards，留空表示个数。",
  "0 (lowest) to 5.": "0（最低）至 5。",
  "What reaches it.": "通过什么接入。",
  "Machines its driver reports.": "驱动上报的机器数。",
  "For example amd64.": "例如 amd64。",
  "As it names itself.": "其自报的名称。",
  "Chips it carries, beside its processors.": "除处理器外所带的芯片。",
  "Kind of chip carried.": "所带芯片的种类。",
  "Instruction set or architecture, for example x86_64, Hopper, DaVinci.":
    "指令集或架构，例如 x86_64、Hopper、DaVinci。",
  "For example EPYC 9654, H800, Ascend 910B.": "例如 EPYC 9654、H800、Ascend 910B。",
  "Who makes it.": "制造商。",
  "How many.": "数量。",
  "Of each.": "每个的值。",
  "Why it cannot be used.": "不可用的原因。",
  "How it is supplied to users.": "以何种方式提供给用户。",
  "How many equal chips; without it: one.": "相同芯片的数量，留空为一个。",
  "Cores of each.": "每个的核数。",
  "Memory of each.": "每个的内存。",
  "The chip's own number, if it is one chip.": "仅一个芯片时其自身编号。",
  "Peak per chip by precision, in billions of operations per second (INT8: integer operations); figures of different precision are never added.":
    "每芯片各精度的峰值，单位为每秒十亿次运算（INT8 为整数运算）；不同精度的数值不相加。",
  "Kind of network.": "网络的种类。",
  "Specification as its provider names it.": "服务商所称的规格。",
  "Megabits per second.": "每秒兆比特。",
  "Round trip in microseconds.": "往返时延，微秒。",
  "What it is built with.": "所用的技术。",
  "Resources it connects, by ID.": "所连接资源的标识符。",
  "Kind of storage.": "存储的种类。",
  "How much it holds.": "可存储的量。",
  "Operations per second.": "每秒操作数。",
  "For example S3, NFS, iSCSI.": "例如 S3、NFS、iSCSI。",
  "Kind of protection.": "防护的种类。",
  "Resources it protects, by ID.": "所保护资源的标识符。",
};

/** What a field is called in the console's language where there are words for it. */
export function fieldTitle(field: Pick<Field, "key" | "title">, language: Language): string {
  return (language === "zh" && Object.hasOwn(TITLES, field.key) ? TITLES[field.key] : undefined) ?? field.title;
}

/** What a field is for, in the console's language where there are words for it. */
export function fieldHelp(field: Pick<Field, "help">, language: Language): string {
  return (language === "zh" && Object.hasOwn(HELP, field.help) ? HELP[field.help] : undefined) ?? sentence(field.help);
}

// Descriptions begin in lower case, as Go's struct tags do.
function sentence(text: string): string {
  return /^[a-z]+\b(?![:/.])/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}
