// The drawing itself: a canvas with its camera. It draws when something has
// changed and rests otherwise; the camera lives here and outlasts new data.
import { type Ref, useEffect, useEffectEvent, useImperativeHandle, useRef, useState } from "react";
import {
  boxOf,
  type Camera,
  fitTo,
  flight,
  focusOf,
  hold,
  limitsOf,
  parentOf,
  pick,
  type Size,
  toWorld,
  zoomAt,
} from "../../lib/topology/camera";
import { draw } from "../../lib/topology/draw";
import type { Layout } from "../../lib/topology/layout";
import { type Graph, sameTarget, type Target, targetOf, vertexId } from "../../lib/topology/model";
import type { Box } from "../../lib/topology/pack";
import { Text } from "../../lib/topology/pen";
import type { Scene } from "../../lib/topology/scene";
import { FONT } from "../../theme";

export interface CanvasHandle {
  /** Goes to where something fills the view. */
  flyTo: (target: Target) => void;
  /** Shows everything. */
  home: () => void;
  zoom: (factor: number) => void;
}

/** Told when the camera has come to rest. */
export interface Rest {
  camera: Camera;
  size: Size;
}

const REST_MS = 160;
const FRAME = "topology.frame";

export function TopologyCanvas(props: {
  ref: Ref<CanvasHandle>;
  scene: Scene;
  label: string;
  describedBy: string;
  tip: (target: Target) => React.ReactNode;
  onSelect: (target: Target | undefined) => void;
  onRest: (rest: Rest) => void;
}) {
  const { scene } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<{ target: Target; x: number; y: number }>();
  const onRest = useEffectEvent(props.onRest);
  const onSelect = useEffectEvent(props.onSelect);
  const view = useRef<View>(null);

  useEffect(() => {
    if (!canvas.current) return;
    const made = new View(canvas.current, {
      rest: (r) => onRest(r),
      select: (t) => onSelect(t),
      hover: (h) => setHover(h),
    });
    view.current = made;
    return () => made.end();
  }, []);
  useEffect(() => {
    view.current?.show(scene);
  }, [scene]);
  useImperativeHandle(
    props.ref,
    () => ({
      flyTo: (target) => view.current?.flyTo(target),
      home: () => view.current?.home(),
      zoom: (factor) => view.current?.zoomBy(factor),
    }),
    [],
  );
  const tip = hover && hover.target.level !== "network" ? props.tip(hover.target) : undefined;
  return (
    <div className="yh-topo-stage">
      {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: an application is moved with the keyboard */}
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label={props.label}
        aria-describedby={props.describedBy}
      />
      {tip && hover && (
        <div className="yh-topo-tip" style={{ left: hover.x, top: hover.y }} aria-hidden>
          {tip}
        </div>
      )}
    </div>
  );
}

interface Listener {
  rest: (rest: Rest) => void;
  select: (target: Target | undefined) => void;
  hover: (hover: { target: Target; x: number; y: number } | undefined) => void;
}

interface Press {
  x: number;
  y: number;
  moved: boolean;
}

/** A canvas that shows a scene and is moved by pointer, wheel and keyboard. */
class View {
  private scene: Scene | undefined;
  private camera: Camera = { x: 0, y: 0, k: 1 };
  private size: Size = { width: 0, height: 0 };
  private placed = false;
  private frame = 0;
  private resting: ReturnType<typeof setTimeout> | undefined;
  private flying: { at: (t: number) => Camera; begin: number; ms: number } | undefined;
  private hovered: Target | undefined;
  private readonly pressed = new Map<number, Press>();
  private readonly text = new Text(FONT);
  private readonly done = new AbortController();
  private readonly observer: ResizeObserver;
  private readonly pen: CanvasRenderingContext2D | null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly tell: Listener,
  ) {
    this.pen = canvas.getContext("2d");
    this.observer = new ResizeObserver(([entry]) => entry && this.resize(entry.contentRect));
    this.observer.observe(canvas);
    const { signal } = this.done;
    const on = <K extends keyof HTMLElementEventMap>(type: K, act: (e: HTMLElementEventMap[K]) => void) =>
      canvas.addEventListener(type, act, { signal, passive: false });
    on("wheel", (e) => this.wheel(e));
    on("pointerdown", (e) => this.down(e));
    on("pointermove", (e) => this.move(e));
    on("pointerup", (e) => this.up(e));
    on("pointercancel", (e) => this.pressed.delete(e.pointerId));
    on("pointerleave", () => this.point(undefined, 0, 0));
    on("dblclick", (e) => this.into(e));
    on("keydown", (e) => this.key(e));
  }

  end(): void {
    this.done.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.resting);
  }

  /** Draws this from now on. The camera stays on what it is on, also if that has another place now. */
  show(scene: Scene): void {
    const before = this.scene;
    this.scene = scene;
    if (before && this.placed && before.layout !== scene.layout) this.carry(before.graph, before.layout, scene);
    if (!this.placed) this.start();
    this.hovered = undefined;
    this.redraw();
  }

  flyTo(target: Target): void {
    const box = this.scene && boxOf(target, this.scene.graph, this.scene.layout);
    if (box) this.fly(fitTo(box, this.size, Math.min(this.size.width, this.size.height) * 0.08));
  }

  home(): void {
    if (this.scene) this.fly(fitTo(this.scene.layout.world, this.size));
  }

  zoomBy(factor: number): void {
    if (!this.scene) return;
    const { width, height } = this.size;
    this.fly(
      zoomAt(this.camera, this.size, width / 2, height / 2, factor, limitsOf(this.scene.layout, this.size)),
      160,
    );
  }

  private start(): void {
    const { scene, size } = this;
    if (!scene || size.width < 2 || size.height < 2 || scene.layout.world.w === 0) return;
    this.camera = fitTo(scene.layout.world, size);
    this.placed = true;
    if (scene.selected && scene.selected.level !== "network") {
      const box = boxOf(scene.selected, scene.graph, scene.layout);
      if (box) this.camera = fitTo(box, size, Math.min(size.width, size.height) * 0.12);
    }
    this.settle();
  }

  private carry(graph: Graph, layout: Layout, scene: Scene): void {
    this.flying = undefined;
    const focus = focusOf(graph, layout, this.camera, this.size);
    const again = focus && targetOf(vertexId(focus, graph), scene.graph);
    const from: Box | undefined = focus && boxOf(focus, graph, layout);
    const to = again && boxOf(again, scene.graph, scene.layout);
    if (!from || !to) return;
    const grown = to.w / from.w;
    this.camera = {
      x: to.x + (this.camera.x - from.x) * grown,
      y: to.y + (this.camera.y - from.y) * (to.h / from.h),
      k: this.camera.k / grown,
    };
    this.settle();
  }

  private resize(rect: { width: number; height: number }): void {
    const before = this.size;
    this.size = { width: Math.round(rect.width), height: Math.round(rect.height) };
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.max(1, this.size.width * ratio);
    this.canvas.height = Math.max(1, this.size.height * ratio);
    if (!this.placed) this.start();
    else if (before.width > 0) this.camera = { ...this.camera, k: this.camera.k * (this.size.width / before.width) };
    this.settle();
    // A canvas that got another size is blank: it is drawn before it is shown.
    this.paint();
  }

  private redraw(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.tick());
  }

  private tick(): void {
    this.frame = 0;
    if (this.flying) {
      const t = Math.min(1, (performance.now() - this.flying.begin) / this.flying.ms);
      this.camera = this.flying.at(t < 0.5 ? 4 * t ** 3 : 1 - (-2 * t + 2) ** 3 / 2);
      if (t >= 1) this.flying = undefined;
      this.settle();
      this.redraw();
    }
    this.paint();
  }

  private paint(): void {
    const { pen, scene, size } = this;
    if (!pen || !scene || !this.placed || size.width < 2) return;
    const start = performance.now();
    const ratio = this.canvas.width / size.width;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const detail = draw(pen, scene, this.camera, size, this.text, this.hovered);
    // For the browser's own tools; not kept.
    performance.measure(FRAME, { start, end: performance.now(), detail });
    performance.clearMeasures(FRAME);
  }

  // Once the camera has not moved for a moment it is said where it is.
  private settle(): void {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.tell.rest({ camera: this.camera, size: this.size }), REST_MS);
  }

  private fly(to: Camera, ms?: number): void {
    if (!this.scene) return;
    const way = flight(this.camera, to, this.size);
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.flying = {
      at: way.at,
      begin: performance.now(),
      ms: still ? 1 : (ms ?? Math.min(1100, Math.max(260, 330 * way.length))),
    };
    this.redraw();
  }

  private set(camera: Camera): void {
    if (!this.scene) return;
    this.flying = undefined;
    this.camera = hold(camera, this.scene.layout.world);
    this.settle();
    this.redraw();
  }

  private at(e: MouseEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  }

  private pickAt(x: number, y: number): Target | undefined {
    if (!this.scene) return undefined;
    const [wx, wy] = toWorld(this.camera, this.size, x, y);
    return pick(this.scene.graph, this.scene.layout, this.camera, wx, wy);
  }

  private wheel(e: WheelEvent): void {
    e.preventDefault();
    if (!this.scene) return;
    // Lines and pages as pixels; pinching on a touchpad comes as a wheel with Ctrl and in small steps.
    const pixels = e.deltaY * (e.deltaMode === 1 ? 24 : e.deltaMode === 2 ? 400 : 1);
    const factor = Math.exp(-Math.max(-240, Math.min(240, pixels)) * (e.ctrlKey ? 0.01 : 0.0022));
    const [x, y] = this.at(e);
    this.set(zoomAt(this.camera, this.size, x, y, factor, limitsOf(this.scene.layout, this.size)));
  }

  private down(e: PointerEvent): void {
    const [x, y] = this.at(e);
    this.canvas.setPointerCapture(e.pointerId);
    this.pressed.set(e.pointerId, { x, y, moved: false });
    this.point(undefined, 0, 0);
  }

  private move(e: PointerEvent): void {
    const [x, y] = this.at(e);
    const press = this.pressed.get(e.pointerId);
    if (!press) {
      this.point(this.pickAt(x, y), x, y);
      return;
    }
    const others = [...this.pressed].filter(([id]) => id !== e.pointerId).map(([, p]) => p);
    const other = others[0];
    if (other && this.scene) {
      // Two fingers: what is under both stays under both.
      const before = Math.hypot(press.x - other.x, press.y - other.y);
      const now = Math.hypot(x - other.x, y - other.y);
      const [mx, my] = [(x + other.x) / 2, (y + other.y) / 2];
      const moved = zoomAt(
        this.camera,
        this.size,
        mx,
        my,
        now / Math.max(1, before),
        limitsOf(this.scene.layout, this.size),
      );
      this.set({ ...moved, x: moved.x - (x - press.x) / 2 / moved.k, y: moved.y - (y - press.y) / 2 / moved.k });
      other.moved = true;
      Object.assign(press, { x, y, moved: true });
      return;
    }
    if (!press.moved && Math.hypot(x - press.x, y - press.y) < 4) return;
    const { k } = this.camera;
    this.set({ k, x: this.camera.x - (x - press.x) / k, y: this.camera.y - (y - press.y) / k });
    Object.assign(press, { x, y, moved: true });
    this.canvas.style.cursor = "grabbing";
  }

  private up(e: PointerEvent): void {
    const press = this.pressed.get(e.pointerId);
    this.pressed.delete(e.pointerId);
    this.canvas.style.cursor = "";
    if (!press || press.moved || e.button !== 0) return;
    const found = this.pickAt(press.x, press.y);
    this.tell.select(found?.level === "network" ? undefined : found);
  }

  // Goes one level deeper towards what is under the pointer.
  private into(e: MouseEvent): void {
    const [x, y] = this.at(e);
    const found = this.pickAt(x, y);
    if (!found || !this.scene) return;
    const focus = focusOf(this.scene.graph, this.scene.layout, this.camera, this.size);
    let next = found;
    for (
      let up = parentOf(next, this.scene.graph);
      up && !sameTarget(up, focus);
      up = parentOf(next, this.scene.graph)
    ) {
      if (up.level === "network") break;
      next = up;
    }
    this.flyTo(next);
  }

  private key(e: KeyboardEvent): void {
    const { scene, size } = this;
    if (!scene || e.ctrlKey || e.metaKey || e.altKey) return;
    const step = (dx: number, dy: number) =>
      this.set({
        k: this.camera.k,
        x: this.camera.x + (dx * size.width * 0.12) / this.camera.k,
        y: this.camera.y + (dy * size.height * 0.12) / this.camera.k,
      });
    switch (e.key) {
      case "ArrowLeft":
        step(-1, 0);
        break;
      case "ArrowRight":
        step(1, 0);
        break;
      case "ArrowUp":
        step(0, -1);
        break;
      case "ArrowDown":
        step(0, 1);
        break;
      case "+":
      case "=":
        this.zoomBy(1.5);
        break;
      case "-":
      case "_":
        this.zoomBy(1 / 1.5);
        break;
      case "0":
      case "Home":
        this.home();
        break;
      case "Enter": {
        const focus = scene.selected ?? focusOf(scene.graph, scene.layout, this.camera, size);
        if (focus) this.flyTo(focus);
        break;
      }
      case "Escape": {
        const focus = focusOf(scene.graph, scene.layout, this.camera, size);
        if (scene.selected) this.tell.select(undefined);
        else {
          const up = focus && parentOf(focus, scene.graph);
          if (up) this.flyTo(up);
          else this.home();
        }
        break;
      }
      default:
        return;
    }
    e.preventDefault();
  }

  private point(target: Target | undefined, x: number, y: number): void {
    const changed = !sameTarget(target, this.hovered);
    this.hovered = target;
    if (target)
      this.tell.hover({
        target,
        x: Math.min(x + 14, this.size.width - 230),
        y: Math.min(y + 16, this.size.height - 70),
      });
    else if (changed) this.tell.hover(undefined);
    if (changed) this.redraw();
  }
}
