import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { type Clients, platformClients } from "./api";
import { App } from "./app";
import "./app.css";
import "./i18n";

// Fixtures exist in development only: the condition is a constant in builds,
// so the import is left out of them.
async function clients(): Promise<Clients> {
  if (import.meta.env.DEV && import.meta.env.VITE_FIXTURE) return (await import("./dev/fixture")).fixtureClients();
  return platformClients();
}

const root = document.getElementById("root");
if (!root) throw new Error("the page has no element with ID root");
createRoot(root).render(
  <StrictMode>
    <App clients={await clients()} />
  </StrictMode>,
);
