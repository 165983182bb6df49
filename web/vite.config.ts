import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Where `npm run dev` finds a running platform.
const platform = process.env.YUNHE_URL ?? "http://127.0.0.1:8080";

const proxy = { "^/(yunhe\\.|v1/)": { target: platform, changeOrigin: true } };

export default defineConfig({
  base: "/",
  plugins: [react()],
  build: {
    target: "es2022",
    chunkSizeWarningLimit: 1500,
  },
  server: { proxy },
  preview: { proxy },
  test: {
    include: ["src/**/*.test.{ts,tsx}"],
    environment: "node",
    env: { TZ: "Asia/Shanghai" },
  },
});
