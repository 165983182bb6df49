// The one door to the platform: transport, clients and the caller's key.
import { type Client, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AccessService } from "./gen/yunhe/access/v1/access_pb";
import { AdapterService } from "./gen/yunhe/adapters/v1/adapters_pb";
import { AlarmService } from "./gen/yunhe/alarms/v1/alarms_pb";
import { AvailabilityService } from "./gen/yunhe/availability/v1/availability_pb";
import { BudgetService } from "./gen/yunhe/budgets/v1/budgets_pb";
import { CalendarService } from "./gen/yunhe/calendar/v1/calendar_pb";
import { ControlService } from "./gen/yunhe/control/v1/control_pb";
import { IdentityService } from "./gen/yunhe/identity/v1/identity_pb";
import { JobService } from "./gen/yunhe/jobs/v1/jobs_pb";
import { MeasurementService } from "./gen/yunhe/measurement/v1/measurement_pb";
import { MeteringService } from "./gen/yunhe/metering/v1/metering_pb";
import { MonitorService } from "./gen/yunhe/monitor/v1/monitor_pb";
import { EquipmentService } from "./gen/yunhe/network/v1/equipment_pb";
import { NetworkService } from "./gen/yunhe/network/v1/network_pb";
import { NoticeService } from "./gen/yunhe/notices/v1/notices_pb";
import { PolicyService } from "./gen/yunhe/policies/v1/policies_pb";
import { PoolOperationService } from "./gen/yunhe/pool/v1/operation_pb";
import { PoolService } from "./gen/yunhe/pool/v1/pool_pb";
import { RegistryService } from "./gen/yunhe/registry/v1/registry_pb";
import { ResourceService } from "./gen/yunhe/registry/v1/resource_pb";
import { RoutingService } from "./gen/yunhe/routing/v1/routing_pb";
import { QueueService } from "./gen/yunhe/scheduler/v1/queues_pb";
import { SchedulerService } from "./gen/yunhe/scheduler/v1/scheduler_pb";
import { SimulationService } from "./gen/yunhe/simulations/v1/simulations_pb";
import { StandingService } from "./gen/yunhe/standing/v1/standing_pb";
import { TagService } from "./gen/yunhe/tags/v1/tags_pb";
import { TopologyService } from "./gen/yunhe/topology/v1/topology_pb";
import { VolumeService } from "./gen/yunhe/volumes/v1/volumes_pb";
import { EXEC_PROTOCOL, keyProtocol } from "./lib/exec";

const STORAGE_KEY = "yunhe.key";

let key = "";

/** Takes the key from "#key=…" in the address, which is then cleaned, or from storage. */
export function loadKey(): string {
  const fragment = new URLSearchParams(window.location.hash.slice(1));
  const given = fragment.get("key")?.trim();
  if (given) {
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
    setKey(given);
  } else {
    key = localStorage.getItem(STORAGE_KEY) ?? "";
  }
  return key;
}

/** Keeps the key for this and later visits; "" forgets it. */
export function setKey(next: string): void {
  key = next;
  if (next) localStorage.setItem(STORAGE_KEY, next);
  else localStorage.removeItem(STORAGE_KEY);
}

function authorization(): string {
  return `Bearer ${key}`;
}

/** Adds the caller's key to every call; a call that brings its own keeps it. */
const authorize: Interceptor = (next) => (request) => {
  if (key && !request.header.has("Authorization")) request.header.set("Authorization", authorization());
  return next(request);
};

export interface Clients {
  access: Client<typeof AccessService>;
  identity: Client<typeof IdentityService>;
  registry: Client<typeof RegistryService>;
  jobs: Client<typeof JobService>;
  scheduler: Client<typeof SchedulerService>;
  measurement: Client<typeof MeasurementService>;
  metering: Client<typeof MeteringService>;
  monitor: Client<typeof MonitorService>;
  network: Client<typeof NetworkService>;
  equipment: Client<typeof EquipmentService>;
  adapters: Client<typeof AdapterService>;
  alarms: Client<typeof AlarmService>;
  control: Client<typeof ControlService>;
  resources: Client<typeof ResourceService>;
  tags: Client<typeof TagService>;
  planning: Client<typeof AvailabilityService>;
  policies: Client<typeof PolicyService>;
  routing: Client<typeof RoutingService>;
  queues: Client<typeof QueueService>;
  budgets: Client<typeof BudgetService>;
  calendar: Client<typeof CalendarService>;
  simulations: Client<typeof SimulationService>;
  standing: Client<typeof StandingService>;
  topology: Client<typeof TopologyService>;
  volumes: Client<typeof VolumeService>;
  pool: Client<typeof PoolService>;
  poolOps: Client<typeof PoolOperationService>;
  notices: Client<typeof NoticeService>;
}

/** Clients of every service over one transport. */
export function createClients(transport: Transport): Clients {
  return {
    access: createClient(AccessService, transport),
    identity: createClient(IdentityService, transport),
    registry: createClient(RegistryService, transport),
    jobs: createClient(JobService, transport),
    scheduler: createClient(SchedulerService, transport),
    measurement: createClient(MeasurementService, transport),
    metering: createClient(MeteringService, transport),
    monitor: createClient(MonitorService, transport),
    network: createClient(NetworkService, transport),
    equipment: createClient(EquipmentService, transport),
    adapters: createClient(AdapterService, transport),
    alarms: createClient(AlarmService, transport),
    control: createClient(ControlService, transport),
    resources: createClient(ResourceService, transport),
    tags: createClient(TagService, transport),
    planning: createClient(AvailabilityService, transport),
    policies: createClient(PolicyService, transport),
    routing: createClient(RoutingService, transport),
    queues: createClient(QueueService, transport),
    budgets: createClient(BudgetService, transport),
    calendar: createClient(CalendarService, transport),
    simulations: createClient(SimulationService, transport),
    standing: createClient(StandingService, transport),
    topology: createClient(TopologyService, transport),
    volumes: createClient(VolumeService, transport),
    pool: createClient(PoolService, transport),
    poolOps: createClient(PoolOperationService, transport),
    notices: createClient(NoticeService, transport),
  };
}

/** Clients of the platform that served this page. */
export function platformClients(): Clients {
  return createClients(
    createConnectTransport({ baseUrl: window.location.origin, useBinaryFormat: true, interceptors: [authorize] }),
  );
}

/** Calls that take longer than this have failed. Streams have no limit. */
const CALL_TIMEOUT_MS = 30_000;

/** Options of a unary call that ends with signal or at the time limit. */
export function call(signal?: AbortSignal): { signal?: AbortSignal; timeoutMs: number } {
  return signal ? { signal, timeoutMs: CALL_TIMEOUT_MS } : { timeoutMs: CALL_TIMEOUT_MS };
}

/** An ID that makes a request safe to repeat. Browsers offer randomUUID on pages served with TLS only. */
export function newRequestId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** All items of a paged list. */
export async function allPages<P extends { nextPageToken: string }, T>(
  fetchPage: (pageToken: string) => Promise<P>,
  items: (page: P) => T[],
): Promise<T[]> {
  const found: T[] = [];
  let token = "";
  do {
    const page = await fetchPage(token);
    found.push(...items(page));
    token = page.nextPageToken;
  } while (token);
  return found;
}

/** Opens the session of a command, see lib/exec. */
export function openExec(path: string): WebSocket {
  const url = new URL(path, window.location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(url, [EXEC_PROTOCOL, keyProtocol(key)]);
  socket.binaryType = "arraybuffer";
  return socket;
}

/** What the platform has against an address. */
export async function problemAt(path: string): Promise<string> {
  return problemOf(await fetch(path, { headers: { Authorization: authorization() } }));
}

/** Downloads a file of the REST interface with the caller's key and hands it to the browser. */
export async function download(path: string, fileName: string): Promise<void> {
  const response = await fetch(path, { headers: { Authorization: authorization() } });
  if (!response.ok) throw new Error(await problemOf(response));
  saveFile(await response.blob(), fileName);
}

/** Hands a file to the browser. */
export function saveFile(blob: Blob, fileName: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = fileName;
  link.click();
  // The browser has taken its own reference once the click is dispatched.
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function problemOf(response: Response): Promise<string> {
  const text = await response.text();
  try {
    const body: unknown = JSON.parse(text);
    if (body && typeof body === "object" && "message" in body && typeof body.message === "string") return body.message;
  } catch {
    // Not JSON: the text is the message.
  }
  return text || `${response.status} ${response.statusText}`;
}
