// A terminal on a command that runs beside a replica. Loaded when it is opened
// first: most people never do.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Screen } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { Button, Input, Select } from "antd";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { openExec, problemAt } from "../api";
import type { Job } from "../gen/yunhe/jobs/v1/jobs_pb";
import { State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { execPath, inputFrames, readFrame, resizeFrame, splitCommand } from "../lib/exec";
import { replicaKey } from "./LogViewer";

interface Opened {
  replica: { taskIndex: number; replicaIndex: number };
  command: string[];
  number: number;
}

export default function Terminal({ job, selected }: { job: Job; selected: string }) {
  const { t } = useTranslation();
  const [line, setLine] = useState("/bin/sh");
  const [opened, setOpened] = useState<Opened>();
  const [ended, setEnded] = useState("");
  const running = job.replicas.filter((r) => r.state === State.RUNNING);
  const [picked, setPicked] = useState(selected);
  const replica = running.find((r) => replicaKey(r) === picked) ?? running[0];
  const live = opened !== undefined && ended === "";
  const command = splitCommand(line);
  const open = () => {
    if (!replica) return;
    setEnded("");
    setOpened((was) => ({
      replica: { taskIndex: replica.taskIndex, replicaIndex: replica.replicaIndex },
      command,
      number: (was?.number ?? 0) + 1,
    }));
  };
  return (
    <div className="yh-terminal">
      <div className="yh-log-bar">
        <Select
          size="small"
          className="yh-log-pick"
          aria-label={t("log.replica")}
          disabled={live}
          value={replica && replicaKey(replica)}
          onChange={setPicked}
          options={running.map((r) => ({
            value: replicaKey(r),
            label: `${job.spec?.tasks[r.taskIndex]?.name ?? r.taskIndex} · ${r.replicaIndex}`,
          }))}
        />
        <Input
          size="small"
          className="yh-terminal-command"
          aria-label={t("terminal.command")}
          disabled={live}
          value={line}
          onChange={(e) => setLine(e.target.value)}
          onPressEnter={open}
        />
        <Button
          size="small"
          type={live ? "default" : "primary"}
          danger={live}
          disabled={!live && (!replica || command.length === 0)}
          onClick={live ? () => setEnded(t("terminal.closed")) : open}
          data-testid="terminal-open"
        >
          {t(live ? "terminal.close" : "terminal.open")}
        </Button>
        <span className="yh-muted" data-testid="terminal-status" role="status">
          {live ? t("terminal.help") : ended || (replica ? t("terminal.help") : t("terminal.none"))}
        </span>
      </div>
      {opened && <Session key={opened.number} jobId={job.jobId} opened={opened} live={live} onEnd={setEnded} />}
    </div>
  );
}

function Session(props: { jobId: string; opened: Opened; live: boolean; onEnd: (why: string) => void }) {
  const { t } = useTranslation();
  const box = useRef<HTMLDivElement>(null);
  const socket = useRef<WebSocket>(undefined);
  const { jobId, opened, live, onEnd } = props;

  // biome-ignore lint/correctness/useExhaustiveDependencies: one session for each time it is opened
  useEffect(() => {
    if (!box.current) return;
    const screen = new Screen({ cursorBlink: true, fontSize: 13, scrollback: 10_000 });
    const fit = new FitAddon();
    screen.loadAddon(fit);
    screen.open(box.current);
    fit.fit();
    screen.focus();
    const path = execPath(jobId, opened.replica, opened.command, { columns: screen.cols, rows: screen.rows });
    const ws = openExec(path);
    socket.current = ws;
    let over = false;
    let connected = false;
    const end = (why: string) => {
      if (over) return;
      over = true;
      screen.options.disableStdin = true;
      screen.options.cursorBlink = false;
      onEnd(why);
    };
    ws.onopen = () => {
      connected = true;
    };
    ws.onmessage = (event: MessageEvent<ArrayBuffer>) => {
      const message = readFrame(event.data);
      if (message.kind === "output") screen.write(message.data);
      if (message.kind === "status") end(message.error ?? t("terminal.ended", { code: message.exitCode ?? 0 }));
    };
    ws.onclose = () => {
      if (connected || over) return end(t("terminal.lost"));
      // A page is not told why a WebSocket was refused: asked as any other address, it says so.
      problemAt(path).then(end, () => end(t("terminal.lost")));
    };
    const typed = screen.onData((text) => {
      if (ws.readyState === WebSocket.OPEN) for (const frame of inputFrames(text)) ws.send(frame);
    });
    const resized = screen.onResize(({ cols, rows }) => {
      if (ws.readyState === WebSocket.OPEN) ws.send(resizeFrame(cols, rows));
    });
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(box.current);
    return () => {
      over = true;
      watch.disconnect();
      typed.dispose();
      resized.dispose();
      ws.close();
      screen.dispose();
    };
  }, []);

  useEffect(() => {
    if (!live) socket.current?.close();
  }, [live]);
  return <div ref={box} className="yh-terminal-box" data-testid="terminal" />;
}
