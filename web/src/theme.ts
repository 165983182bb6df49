// Look of the console: antd tokens for both themes, and the colors charts use.
import { type ThemeConfig, theme } from "antd";
import type { ThemeName } from "./prefs";

export const FONT =
  'system-ui, -apple-system, "Segoe UI", Roboto, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", sans-serif';
export const MONO =
  'ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", "Noto Sans Mono CJK SC", monospace';

const shared: ThemeConfig["token"] = {
  fontFamily: FONT,
  fontFamilyCode: MONO,
  fontSize: 13,
  borderRadius: 6,
  borderRadiusLG: 8,
  controlHeight: 30,
  wireframe: false,
};

export function antdTheme(name: ThemeName): ThemeConfig {
  const dark = name === "dark";
  return {
    algorithm: dark ? theme.darkAlgorithm : theme.defaultAlgorithm,
    token: {
      motion: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
      ...shared,
      ...(dark
        ? {
            colorPrimary: "#4f8df5",
            colorInfo: "#4f8df5",
            colorBgBase: "#0e131a",
            colorBgLayout: "#0a0e14",
            colorBgContainer: "#121923",
            colorBgElevated: "#18212d",
            colorBorderSecondary: "#202b39",
            colorBorder: "#2d3a4b",
            colorTextBase: "#e4eaf2",
          }
        : {
            colorPrimary: "#1f5fd0",
            colorInfo: "#1f5fd0",
            colorBgLayout: "#f4f6f9",
            colorBorderSecondary: "#e8ecf1",
            colorBorder: "#d3dae3",
            colorTextBase: "#17202c",
          }),
    },
    components: {
      // Not transparent: what is scrolled would show through columns that stay.
      Table: { headerBg: dark ? "#121923" : "#ffffff", headerSplitColor: "transparent", cellPaddingBlockSM: 7 },
      Menu: {
        itemHeight: 36,
        itemBorderRadius: 6,
        itemMarginInline: 8,
        ...(dark ? { itemSelectedColor: "#a9c8ff", itemSelectedBg: "#1c2c45" } : {}),
      },
      Layout: { headerHeight: 52 },
      Descriptions: { itemPaddingBottom: 10 },
      Slider: dark
        ? {
            trackBg: "#3f76d0",
            trackHoverBg: "#4f8df5",
            handleColor: "#4f8df5",
            railBg: "#222e3d",
            railHoverBg: "#2a3747",
          }
        : {
            trackBg: "#5a8ae0",
            trackHoverBg: "#1f5fd0",
            handleColor: "#5a8ae0",
            railBg: "#e6eaf0",
            railHoverBg: "#dbe1e9",
          },
    },
  };
}

/** Line colors that stay apart on both backgrounds, for up to ten series; then they repeat. */
export const SERIES = [
  "#3b7ddd",
  "#17a398",
  "#e08a1e",
  "#8d63d6",
  "#d2556b",
  "#5a9e3d",
  "#c9a400",
  "#2aa5cf",
  "#b3669f",
  "#7c8798",
] as const;
