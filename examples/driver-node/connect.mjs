// Serves a service of a .proto file over the Connect protocol with protocol
// buffers, on HTTP/2 without encryption, with nothing but Node's own modules.
// It knows what the contract of drivers uses: messages of scalars, enums,
// messages, lists of them and maps from text; calls that answer once and calls
// that answer with a stream. Fields are named as in the .proto file, 64-bit
// integers are numbers (exact up to 2^53), and what is not set has its zero value.
//
// With an npm project of your own, use @connectrpc/connect-node and generated
// code instead; this file is here so that the example needs neither.
import http2 from "node:http2";

/** An error with one of Connect's codes, for example not_found. */
export class ConnectError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const statuses = { canceled: 499, deadline_exceeded: 504, invalid_argument: 400, not_found: 404, unavailable: 503, unimplemented: 501 };

/** Reads the messages and enums of a .proto file. */
export function parse(proto) {
  const text = proto.replace(/\/\/.*$/gm, "");
  const types = { "google.protobuf.Timestamp": [{ name: "seconds", n: 1, type: "int64" }, { name: "nanos", n: 2, type: "int32" }] };
  const enums = {};
  for (const [, name, body] of text.matchAll(/\benum (\w+) \{([^}]*)\}/g))
    enums[name] = Object.fromEntries([...body.matchAll(/(\w+) = (\d+);/g)].map(([, k, v]) => [k, Number(v)]));
  for (const [, name, body] of text.matchAll(/\bmessage (\w+) \{([^}]*)\}/g))
    types[name] = [...body.matchAll(/(repeated )?(?:map<string, *([\w.]+)>|([\w.]+)) (\w+) = (\d+);/g)].map(([, repeated, value, type, field, n]) => {
      if (value) types[`map ${value}`] = [{ name: "key", n: 1, type: "string" }, { name: "value", n: 2, type: value in enums ? "int32" : value }];
      return { name: field, n: Number(n), repeated: Boolean(repeated || value), map: Boolean(value), type: value ? `map ${value}` : type in enums ? "int32" : type };
    });
  return { types, enums };
}

const scalars = { string: 2, bytes: 2, double: 1, int64: 0, int32: 0, bool: 0 }; // and their wire types

function varint(out, v) {
  for (v = BigInt.asUintN(64, BigInt(v)); v > 127n; v >>= 7n) out.push(Buffer.of(Number(v & 127n) | 128));
  out.push(Buffer.of(Number(v)));
}

export function encode(types, type, msg) {
  const out = [];
  for (const f of types[type]) {
    let values = msg[f.name];
    if (f.map) values = Object.entries(values ?? {}).map(([key, value]) => ({ key, value }));
    else if (!f.repeated) values = [values].filter((v) => v !== undefined && v !== null && v !== "" && v !== 0 && v !== false && v.length !== 0);
    for (const v of values ?? []) {
      const wire = scalars[f.type] ?? 2;
      varint(out, (f.n << 3) | wire);
      if (wire === 0) varint(out, typeof v === "boolean" ? Number(v) : v);
      else if (wire === 1) out.push(Buffer.from(new Float64Array([v]).buffer));
      else {
        const bytes = f.type in scalars ? Buffer.from(v) : encode(types, f.type, v);
        varint(out, bytes.length);
        out.push(bytes);
      }
    }
  }
  return Buffer.concat(out);
}

export function decode(types, type, bytes) {
  let at = 0;
  const next = () => {
    let v = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (at >= bytes.length) throw new ConnectError("invalid_argument", `the ${type} ends too early`);
      const b = bytes[at++];
      v |= BigInt(b & 127) << shift;
      if (b < 128) return v;
    }
  };
  const take = (n) => {
    if (at + n > bytes.length) throw new ConnectError("invalid_argument", `the ${type} ends too early`);
    at += n;
    return bytes.subarray(at - n, at);
  };
  const zero = (f) => (f.map ? {} : f.repeated ? [] : { string: "", bytes: Buffer.alloc(0), bool: false }[f.type] ?? (f.type in scalars ? 0 : null));
  const out = Object.fromEntries(types[type].map((f) => [f.name, zero(f)]));
  while (at < bytes.length) {
    const key = Number(next());
    const f = types[type].find((f) => f.n === key >> 3);
    const raw = [() => next(), () => take(8), () => take(Number(next())), , , () => take(4)][key & 7]?.();
    if (raw === undefined) throw new ConnectError("invalid_argument", `the ${type} has a field of unknown kind ${key & 7}`);
    if (!f) continue; // of a later contract
    let v = raw;
    if (f.type === "string") v = raw.toString("utf8");
    else if (f.type === "bool") v = raw !== 0n;
    else if (f.type === "double") v = raw.readDoubleLE();
    else if (typeof raw === "bigint") v = Number(BigInt.asIntN(64, raw));
    else if (f.type !== "bytes") v = decode(types, f.type, raw);
    if (f.map) out[f.name][v.key] = v.value;
    else if (f.repeated) out[f.name].push(v);
    else out[f.name] = v;
  }
  return out;
}

/** A frame of a stream: flags (2 ends it), length, content. */
function frame(flags, content) {
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(content.length, 1);
  return Buffer.concat([head, content]);
}

/**
 * Serves methods by name. One that is an async generator answers with a
 * stream, any other async function once. Each gets the request and an
 * AbortSignal that fires when the caller is gone or its deadline has passed.
 */
export function serve({ socket, service, proto, methods }) {
  const { types } = parse(proto);
  const server = http2.createServer();
  server.on("stream", async (stream, headers) => {
    const gone = new AbortController();
    stream.on("close", () => gone.abort(new ConnectError("canceled", "the caller is gone")));
    stream.on("error", () => {}); // close follows
    const limit = Number(headers["connect-timeout-ms"] ?? 0);
    const timer = limit > 0 && setTimeout(() => gone.abort(new ConnectError("deadline_exceeded", `not done within ${limit} ms`)), limit);
    const streams = headers["content-type"] === "application/connect+proto";
    const fail = (err) => ({ code: err.code in statuses ? err.code : "unavailable", message: err.message });
    try {
      const [, called, name] = headers[":path"].split("/");
      const method = called === service && Object.hasOwn(methods, name) && methods[name];
      const parts = [];
      // What is not offered is said at once: a caller may wait for that before it says all.
      if (method || !streams) for await (const part of stream) parts.push(part);
      const body = Buffer.concat(parts);
      if (!streams) {
        if (!method) throw new ConnectError("unimplemented", `${headers[":path"]} is not offered here`);
        const res = await Promise.race([method(decode(types, `${name}Request`, body), gone.signal), aborted(gone.signal)]);
        stream.respond({ ":status": 200, "content-type": "application/proto" });
        stream.end(encode(types, `${name}Response`, res));
        return;
      }
      stream.respond({ ":status": 200, "content-type": "application/connect+proto" });
      let end = {};
      try {
        if (!method) throw new ConnectError("unimplemented", `${headers[":path"]} is not offered here`);
        for await (const msg of method(decode(types, `${name}Request`, body.subarray(5)), gone.signal))
          if (!stream.write(frame(0, encode(types, `${name}Response`, msg)))) await Promise.race([new Promise((ok) => stream.once("drain", ok)), aborted(gone.signal)]);
        gone.signal.throwIfAborted();
      } catch (err) {
        end = { error: fail(err) };
      }
      stream.end(frame(2, Buffer.from(JSON.stringify(end))));
    } catch (err) {
      if (stream.destroyed || stream.headersSent) return;
      stream.respond({ ":status": statuses[fail(err).code], "content-type": "application/json" });
      stream.end(JSON.stringify(fail(err)));
    } finally {
      clearTimeout(timer);
    }
  });
  server.listen(socket);
  return server;
}

/** Waits, less long if the signal fires. */
export const pause = (ms, signal) =>
  new Promise((ok) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      ok();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });

const aborted = (signal) =>
  new Promise((_, no) => {
    if (signal.aborted) no(signal.reason);
    signal.addEventListener("abort", () => no(signal.reason));
  });
