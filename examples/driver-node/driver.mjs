// An example of a Yunhe driver in JavaScript: plain processes of this Linux
// machine, without any isolation. It needs Node 20 and no package, and passes
// the same suite as drivers in Go (driver_test.go). All it knows is in a folder,
// so it may be killed at any time, and two may serve one folder:
//
//   ATTEMPT/attempt.json  what was applied; the folder appears whole, by a rename
//   ATTEMPT/claim/        somebody decided whether it starts: who made this
//   ATTEMPT/started       process around it and when that began, by the kernel
//   ATTEMPT/log           what it wrote
//   ATTEMPT/why           it was asked to end: stopped, wall_time
//   ATTEMPT/exit          exit status, and why, if it was asked to
//   ATTEMPT/never         why it will not start: stopped, lost
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { ConnectError, pause, serve } from "./connect.mjs";

const socket = process.env.YUNHE_DRIVER_SOCKET;
if (!socket) {
  console.error("YUNHE_DRIVER_SOCKET is not set: this program is a driver and is started by Yunhe");
  process.exit(1);
}
const configFile = process.env.YUNHE_DRIVER_CONFIG;
const config = { dir: path.join(os.tmpdir(), "yunhe-driver-node"), prices: { small: 100 }, ...(configFile ? JSON.parse(fs.readFileSync(configFile, "utf8")) : {}) };
const schema = {
  type: "object",
  additionalProperties: false,
  properties: {
    dir: { type: "string", description: "folder of what it runs" },
    prices: { type: "object", description: "fen per hour by specification", additionalProperties: { type: "integer" } },
  },
};
const proto = fs.readFileSync(new URL("../../api/yunhe/adapter/v1/adapter.proto", import.meta.url), "utf8");
const PENDING = 1, RUNNING = 2, ENDED = 3; // enum Phase
const isID = /^[A-Za-z0-9_-]{1,64}$/;
const maxText = 64 << 10; // what the kernel passes to a program for sure

// The shell around a command outlives the driver and writes down its end.
// However many are started, the first that makes the claim runs.
const around = `mkdir claim 2>/dev/null || exit 0
trap : TERM
echo "$$ $(cut -d' ' -f22 /proc/$$/stat)" >started.new && mv started.new started || exit
(cd work && exec /bin/sh -c "$1") >log 2>&1
code=$?
trap '' TERM
{ echo $code; cat why 2>/dev/null; } >exit.new
mv exit.new exit`;

const inDir = (id, ...names) => path.join(config.dir, id, ...names);
/** Content of a small file and when it was written, in microseconds; null if there is none. */
function get(id, name) {
  try {
    return { text: fs.readFileSync(inDir(id, name), "utf8").trim(), at: Number(fs.statSync(inDir(id, name), { bigint: true }).mtimeNs / 1000n) };
  } catch (err) {
    if (err.code === "ENOENT") return null;
    throw err;
  }
}
/** Does f and reports whether nobody had done it before. */
function first(f) {
  try {
    f();
    return true;
  } catch (err) {
    if (err.code === "EEXIST" || err.code === "ENOTEMPTY") return false;
    throw err;
  }
}
/** Makes a file appear whole, unless there is one. */
function put(id, name, text) {
  const made = inDir(id, `.${name}-${process.pid}-${process.hrtime.bigint()}`);
  fs.writeFileSync(made, text);
  first(() => fs.linkSync(made, inDir(id, name)));
  fs.rmSync(made);
}
/** Makes an attempt's folder appear whole, unless there is one. */
function create(id, fill) {
  if (fs.existsSync(inDir(id))) return;
  const made = path.basename(fs.mkdtempSync(inDir(".new-")));
  try {
    fill(made);
    first(() => fs.renameSync(inDir(made), inDir(id)));
  } finally {
    fs.rmSync(inDir(made), { recursive: true, force: true });
  }
}

/** What the files of an attempt say; null if it is not known. */
function status(id) {
  if (!isID.test(id) || !fs.existsSync(inDir(id))) return null;
  const st = { attempt_id: id, phase: PENDING, message: "about to start" };
  const never = get(id, "never");
  if (never) return { ...st, phase: ENDED, reason: never.text, message: "it was not started here" };
  const started = get(id, "started");
  if (!started) return st;
  Object.assign(st, { phase: RUNNING, message: "", started_at: started.at });
  const exit = get(id, "exit");
  if (!exit) return st;
  const [code, why] = exit.text.split("\n");
  const reason = why ?? (code === "0" ? "completed" : Number(code) > 128 ? "signal" : "exit");
  return { ...st, phase: ENDED, ended_at: exit.at, exit_code: Number(code), reason, log_bytes: fs.statSync(inDir(id, "log"), { throwIfNoEntry: false })?.size ?? 0 };
}

const begun = new Map(); // when a shell was last started around an attempt

/** Takes an attempt as far as it goes now. */
function drive(id) {
  const st = status(id);
  if (!st || st.phase === ENDED) return;
  const why = get(id, "why");
  if (st.phase === PENDING) {
    if (why) {
      if (first(() => fs.mkdirSync(inDir(id, "claim"))) || Date.now() - fs.statSync(inDir(id, "claim")).mtimeMs > 10_000) put(id, "never", why.text);
    } else if (!fs.existsSync(inDir(id, "claim")) && Date.now() - (begun.get(id) ?? 0) > 5000) {
      begun.set(id, Date.now());
      const a = JSON.parse(get(id, "attempt.json").text);
      const shell = spawn("/bin/sh", ["-c", around, "sh", a.command], { cwd: inDir(id), env: { PATH: process.env.PATH, ...a.env }, detached: true, stdio: "ignore" });
      shell.on("error", (err) => console.error(`${id} could not be started, will be tried again: ${err.message}`));
      shell.on("exit", soon);
      shell.unref();
    }
    return;
  }
  const [pid, born] = get(id, "started").text.split(" ");
  const stat = fs.existsSync(`/proc/${pid}/stat`) && fs.readFileSync(`/proc/${pid}/stat`, "utf8").split(" ");
  if (!stat || stat[21] !== born || stat[2] === "Z") return put(id, "exit", `137\n${why?.text ?? "lost"}\n`);
  const a = JSON.parse(get(id, "attempt.json").text);
  const ms = (at) => Date.now() - at / 1000;
  if (!why && a.timeout_seconds > 0 && ms(st.started_at) > a.timeout_seconds * 1000) put(id, "why", "wall_time\n");
  if (!why) return;
  if (ms(why.at) > (a.stop_grace_seconds || 10) * 1000) process.kill(-pid, "SIGKILL");
  // Once, whoever looks, and not before the shell has begun the command: it would swallow it.
  else if (ms(st.started_at) > 200 && first(() => fs.mkdirSync(inDir(id, "asked")))) process.kill(-pid, "SIGTERM");
}

// What is known, for all readers: statuses by ID, what is the matter with the
// folder, and the alarm that rings when it changed.
let known = new Map(), trouble = "not looked yet", alarm = new AbortController(), due = null;
function soon() {
  due ??= setImmediate(look);
}
function look() {
  due = null;
  const ids = new Map();
  let wrong = "";
  try {
    for (const id of fs.readdirSync(config.dir).filter((id) => isID.test(id))) {
      try {
        drive(id);
      } catch (err) {
        if (fs.existsSync(inDir(id)) && err.code !== "ESRCH") console.error(`${id} is not looked after: ${err.message}`);
      }
      const st = status(id);
      if (st) ids.set(id, st);
    }
  } catch (err) {
    wrong = `the folder of runs cannot be read: ${err.message}; make it readable again, then all goes on by itself`;
  }
  const changed = wrong !== trouble || (!wrong && JSON.stringify([...ids]) !== JSON.stringify([...known]));
  trouble = wrong;
  if (!wrong) known = ids;
  if (changed) {
    alarm.abort();
    alarm = new AbortController();
  }
}

const capacity = { cpu: os.cpus().length * 1000, memory: os.totalmem() };
const inventory = {
  ai_center_id: process.env.YUNHE_DRIVER_CENTER || "processes-node", name: "Plain processes (Node)", region: "local", version: "1", images: ["host"], capacity,
  offers: Object.entries(config.prices).map(([resource_spec_id, price]) => ({ resource_spec_id, price })),
};
const node = { name: os.hostname(), state: 1, capacity, allocatable: capacity, architecture: process.arch, operating_system: process.platform };

/** Why an attempt can never run here, "" if it can. */
function refuse(a) {
  if (!isID.test(a.attempt_id)) return `attempt_id must match ${isID}, got ${JSON.stringify(a.attempt_id)}`;
  if (a.image_id !== "host") return `image "${a.image_id}" is not here, only host`;
  if (!Object.hasOwn(config.prices, a.resourcespec_id)) return `specification "${a.resourcespec_id}" is not offered here`;
  if (!a.command || a.command.length > maxText) return `command must have 1 to ${maxText} bytes, got ${a.command.length}`;
  for (const [name, q] of Object.entries(a.resources)) if (q < 0 || !(q <= capacity[name])) return `${name} must be 0 to ${capacity[name] ?? 0} here, got ${q}`;
  for (const name of Object.keys(a.env)) if (!/^[A-Za-z_]\w*$/.test(name)) return `"${name}" is no name of a variable`;
  const size = Buffer.byteLength(Object.entries(a.env).join());
  if (size > maxText) return `the environment must have at most ${maxText} bytes, got ${size}`;
  for (const f of a.files) if (!f.path || path.isAbsolute(f.path) || f.path.split("/").includes("..")) return `file "${f.path}" is outside of the working directory`;
  return "";
}

const methods = {
  Describe: async () => ({ name: "processes-node", version: "1", parts: [4 /* PART_JOB */], config_schema: JSON.stringify(schema) }),
  Discover: async () => ({ inventory }),
  async *Watch(_, signal) {
    for (let told = false; !signal.aborted; await pause(1000, AbortSignal.any([signal, alarm.signal]))) {
      if (trouble) yield { trouble };
      else yield told ? {} : { inventory, nodes: [node] };
      told = !trouble; // after trouble all is told again
    }
  },
  async Apply({ attempts }) {
    const refusals = [];
    for (const a of attempts) {
      const reason = refuse(a);
      if (reason) {
        refusals.push({ attempt_id: a.attempt_id, reason });
        continue;
      }
      create(a.attempt_id, (dir) => {
        if (a.seen) return put(dir, "never", "lost\n"); // it ran, and is not known here: never twice
        fs.mkdirSync(inDir(dir, "work"));
        for (const f of a.files) {
          fs.mkdirSync(path.dirname(inDir(dir, "work", f.path)), { recursive: true });
          fs.writeFileSync(inDir(dir, "work", f.path), f.content, { mode: f.executable ? 0o700 : 0o600 });
        }
        put(dir, "attempt.json", JSON.stringify({ ...a, files: [] }));
      });
    }
    soon();
    return { refusals };
  },
  async Remove({ stop, forget }) {
    for (const id of stop.filter((id) => isID.test(id))) {
      create(id, (dir) => put(dir, "never", "stopped\n"));
      put(id, "why", "stopped\n");
    }
    for (const id of forget)
      if (status(id)?.phase === ENDED) {
        const trash = inDir(`.old-${process.hrtime.bigint()}`);
        fs.renameSync(inDir(id), trash);
        fs.rmSync(trash, { recursive: true });
        begun.delete(id);
        known.delete(id); // it may come again, as another
      }
    soon();
    return {};
  },
  async *Observe(_, signal) {
    for (let sent = new Map(), told = false; !signal.aborted; ) {
      const ring = alarm.signal;
      const statuses = [...known.values()].filter((st) => sent.get(st.attempt_id) !== JSON.stringify(st));
      sent = new Map([...known.values()].map((st) => [st.attempt_id, JSON.stringify(st)]));
      if (statuses.length || !told) yield { statuses };
      told = true;
      await pause(60_000, AbortSignal.any([signal, ring]));
    }
  },
  async ReadLog(r, signal) {
    for (const until = Date.now() + r.wait_milliseconds; ; await pause(50, signal)) {
      const st = status(r.attempt_id); // first: what it wrote before its end is there then
      if (!st) throw new ConnectError("not_found", `attempt "${r.attempt_id}" is not known here`);
      const limit = Math.min(r.limit > 0 ? r.limit : Infinity, 524288);
      let data = Buffer.alloc(0), size = 0;
      if (fs.existsSync(inDir(r.attempt_id, "log"))) {
        const file = fs.openSync(inDir(r.attempt_id, "log"), "r");
        size = fs.fstatSync(file).size;
        data = Buffer.alloc(Math.max(0, Math.min(limit, size - r.offset)));
        if (data.length) data = data.subarray(0, fs.readSync(file, data, 0, data.length, r.offset));
        fs.closeSync(file);
      }
      const end = st.phase === ENDED && r.offset + data.length >= size;
      if (data.length || end || Date.now() >= until || signal.aborted) return { data, offset: r.offset, end };
    }
  },
};

try {
  fs.mkdirSync(config.dir, { recursive: true, mode: 0o700 });
} catch {} // the first look says what is wrong
look();
setInterval(look, 100);
fs.rmSync(socket, { force: true });
serve({ socket, service: "yunhe.adapter.v1.DriverService", proto, methods });
process.stdin.resume().on("end", () => process.exit(0)); // Yunhe is gone
process.on("SIGTERM", () => process.exit(0));
