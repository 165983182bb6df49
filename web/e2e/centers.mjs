// Centers for tests: many in one process, each a driver at an address of its
// own, with nodes that the test adds, fails and removes. They run nothing.
import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import { pause, serve } from "../../examples/driver-node/connect.mjs";

const proto = readFileSync(new URL("../../api/yunhe/adapter/v1/adapter.proto", import.meta.url), "utf8");
/** Nodes in one message. */
const PIECE = 500;
const GIB = 2 ** 30;

export const READY = 1;
export const NOT_READY = 2;
export const DRAINED = 3;

/** A center with so many nodes of eight cards each. */
export class TestCenter {
  constructor({ id, name, region, longitude, latitude, nodes, model = "H800" }) {
    const resource = model.startsWith("Ascend") ? "npu" : "gpu";
    this.capacity = { cpu: 128_000, memory: 1024 * GIB, [resource]: 8 };
    this.accelerators = [
      { vendor: resource === "npu" ? "Huawei" : "NVIDIA", model, count: 8, memory_bytes: 80 * GIB, resource },
    ];
    this.inventory = {
      ai_center_id: id,
      name,
      region,
      longitude,
      latitude,
      version: "1",
      images: ["host"],
      capacity: Object.fromEntries(Object.entries(this.capacity).map(([k, v]) => [k, v * nodes])),
    };
    this.nodes = new Map();
    for (let i = 0; i < nodes; i++) this.add(`node-${i.toString().padStart(5, "0")}`);
    this.busy = 0.55;
    this.alarm = new AbortController();
    this.changed = new Set();
    this.gone = new Set();
  }

  add(name) {
    this.nodes.set(name, {
      name,
      state: READY,
      capacity: this.capacity,
      allocatable: this.capacity,
      architecture: "amd64",
      operating_system: "linux",
      accelerators: this.accelerators,
    });
    this.tell(name);
  }

  set(name, state, reason = "") {
    Object.assign(this.nodes.get(name), { state, reason });
    this.tell(name);
  }

  remove(name) {
    this.nodes.delete(name);
    this.gone?.add(name);
    this.alarm?.abort();
  }

  tell(name) {
    this.changed?.add(name);
    this.alarm?.abort();
  }

  measurement() {
    const wave = (i) => Math.min(1, Math.max(0, this.busy + 0.4 * Math.sin(i * 0.9) * Math.cos(i * 0.13)));
    return {
      measured_at: { seconds: Math.floor(Date.now() / 1000) },
      cpu_busy_permille: Math.round(this.busy * 1000),
      memory_busy_bytes: 300 * GIB * this.nodes.size,
      memory_total_bytes: 1024 * GIB * this.nodes.size,
      nodes: [...this.nodes.keys()].map((name, i) => ({
        name,
        cpu_busy_permille: Math.round(wave(i) * 1000),
        memory_busy_bytes: Math.round(wave(i + 5) * 1000) * GIB,
        accelerators: Array.from({ length: 8 }, (_, index) => ({
          index,
          busy_permille: Math.round(wave(i + index / 2) * 1000),
          memory_busy_bytes: Math.round(wave(i + index) * 80) * GIB,
          memory_total_bytes: 80 * GIB,
        })),
      })),
      paths: [
        {
          peer: "platform",
          latency_microseconds: 4_000 + (this.inventory.latitude ?? 0) * 400,
          jitter_microseconds: 300,
          bandwidth_bits_per_second: 10_000_000_000,
        },
      ],
    };
  }

  async *watch(signal) {
    // Each piece that has to wait listens to it.
    setMaxListeners(0, signal);
    const all = [...this.nodes.values()];
    this.changed.clear();
    this.gone.clear();
    for (let i = 0; i < all.length || i === 0; i += PIECE) {
      yield {
        ...(i === 0 ? { inventory: this.inventory } : {}),
        nodes: all.slice(i, i + PIECE),
        more: i + PIECE < all.length,
      };
    }
    for (let n = 0; !signal.aborted; n++) {
      const nodes = [...this.changed].flatMap((name) => this.nodes.get(name) ?? []);
      const gone = [...this.gone];
      this.changed.clear();
      this.gone.clear();
      yield { nodes, gone, ...(n % 5 === 0 ? { measurement: this.measurement() } : {}) };
      this.alarm = new AbortController();
      if (this.changed.size + this.gone.size === 0) await pause(1000, this.alarm.signal);
    }
  }

  /** Serves the center; answers its address and what ends it. */
  async serve() {
    const { inventory } = this;
    const methods = {
      Describe: async () => ({ name: "test", version: "1", parts: [3, 4] }),
      Discover: async () => ({ inventory }),
      Watch: (_, signal) => this.watch(signal),
      Apply: async ({ attempts }) => ({
        refusals: attempts.map((a) => ({ attempt_id: a.attempt_id, reason: "nothing runs here" })),
      }),
      Remove: async () => ({}),
      async *Observe(_, signal) {
        yield { statuses: [] };
        while (!signal.aborted) await pause(60_000, signal);
      },
    };
    // A method that is an async generator answers with a stream; this one is bound to its center.
    const server = serve({
      socket: { host: "127.0.0.1", port: 0 },
      service: "yunhe.adapter.v1.DriverService",
      proto,
      methods,
    });
    if (!server.listening) await new Promise((done) => server.once("listening", done));
    const sessions = new Set();
    server.on("session", (s) => {
      sessions.add(s);
      s.on("close", () => sessions.delete(s));
    });
    return {
      address: `http://127.0.0.1:${server.address().port}`,
      end: () =>
        new Promise((done) => {
          server.close(done);
          for (const s of sessions) s.destroy();
        }),
    };
  }
}
