// Providers, routes, and what is shown before and after signing in.
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { App as AntApp, Button, ConfigProvider, Result, Spin } from "antd";
import enUS from "antd/locale/en_US";
import zhCN from "antd/locale/zh_CN";
import dayjs from "dayjs";
import "dayjs/locale/zh-cn";
import { Suspense, useEffect, useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { createBrowserRouter, RouterProvider } from "react-router";
import type { Clients } from "./api";
import { Shell } from "./components/Shell";
import { FeedProvider } from "./feed";
import { isUnauthenticated, isUnreachable, messageOf } from "./lib/errors";
import { SignIn } from "./pages/SignIn";
import { PrefsProvider, usePrefs } from "./prefs";
import { SessionProvider, useSession } from "./session";
import { antdTheme } from "./theme";

export function App({ clients }: { clients: Clients }) {
  return (
    <PrefsProvider>
      <Themed>
        <SessionProvider clients={clients}>
          <Gate />
        </SessionProvider>
      </Themed>
    </PrefsProvider>
  );
}

function Themed({ children }: { children: React.ReactNode }) {
  const { language, theme } = usePrefs();
  useEffect(() => {
    dayjs.locale(language === "zh" ? "zh-cn" : "en");
  }, [language]);
  return (
    <ConfigProvider
      theme={useMemo(() => antdTheme(theme), [theme])}
      locale={language === "zh" ? zhCN : enUS}
      componentSize="middle"
      button={{ autoInsertSpace: false }}
    >
      <AntApp className="yh-app">{children}</AntApp>
    </ConfigProvider>
  );
}

function Gate() {
  const { state, retry, signOut } = useSession();
  const { t } = useTranslation();
  switch (state.phase) {
    case "checking":
      return <Spin fullscreen />;
    case "unreachable":
      return (
        <main className="yh-center-page">
          <Result
            status="warning"
            title={t("session.unreachable")}
            subTitle={messageOf(state.error)}
            extra={[
              <Button key="retry" type="primary" onClick={retry}>
                {t("common.retry")}
              </Button>,
              <Button key="out" onClick={signOut}>
                {t("session.signOut")}
              </Button>,
            ]}
          />
        </main>
      );
    case "signedOut":
      return <SignIn />;
    case "signedIn":
      return <Console key={state.keyId} />;
  }
}

// A failed read is tried again twice if the platform was not reached; its answers are final.
function retryRead(count: number, error: unknown): boolean {
  return count < 2 && isUnreachable(error);
}

function Console() {
  const { expire } = useSession();
  const end = useRef(expire);
  end.current = expire;
  const client = useMemo(() => {
    const onError = (error: unknown) => {
      if (isUnauthenticated(error)) end.current();
    };
    return new QueryClient({
      queryCache: new QueryCache({ onError }),
      mutationCache: new MutationCache({ onError }),
      defaultOptions: { queries: { retry: retryRead, staleTime: 1_000, refetchOnWindowFocus: true } },
    });
  }, []);
  const router = useMemo(consoleRouter, []);
  return (
    <QueryClientProvider client={client}>
      <FeedProvider>
        <Suspense fallback={<Spin fullscreen />}>
          <RouterProvider router={router} />
        </Suspense>
      </FeedProvider>
    </QueryClientProvider>
  );
}

function consoleRouter() {
  return createBrowserRouter([
    {
      path: "/",
      element: <Shell />,
      hydrateFallbackElement: <Spin fullscreen />,
      children: [
        { index: true, lazy: async () => ({ Component: (await import("./pages/Overview")).Overview }) },
        { path: "jobs", lazy: async () => ({ Component: (await import("./pages/Jobs")).Jobs }) },
        { path: "jobs/new", lazy: async () => ({ Component: (await import("./pages/SubmitJob")).SubmitJob }) },
        { path: "jobs/:jobId", lazy: async () => ({ Component: (await import("./pages/JobDetail")).JobDetail }) },
        { path: "centers", lazy: async () => ({ Component: (await import("./pages/Centers")).Centers }) },
        {
          path: "centers/:centerId",
          lazy: async () => ({ Component: (await import("./pages/CenterDetail")).CenterDetail }),
        },
        { path: "topology", lazy: async () => ({ Component: (await import("./pages/Topology")).Topology }) },
        { path: "network", lazy: async () => ({ Component: (await import("./pages/Network")).Network }) },
        { path: "compare", lazy: async () => ({ Component: (await import("./pages/Compare")).Compare }) },
        { path: "alarms", lazy: async () => ({ Component: (await import("./pages/Alarms")).Alarms }) },
        { path: "nodes", lazy: async () => ({ Component: (await import("./pages/Nodes")).Nodes }) },
        { path: "resources", lazy: async () => ({ Component: (await import("./pages/Resources")).Resources }) },
        {
          path: "resources/:resourceId",
          lazy: async () => ({ Component: (await import("./pages/ResourceDetail")).ResourceDetail }),
        },
        { path: "tags", lazy: async () => ({ Component: (await import("./pages/Tags")).Tags }) },
        { path: "allocations", lazy: async () => ({ Component: (await import("./pages/Allocations")).Allocations }) },
        { path: "connect", lazy: async () => ({ Component: (await import("./pages/Connect")).Connect }) },
        { path: "access", lazy: async () => ({ Component: (await import("./pages/Access")).Access }) },
        { path: "plugins", lazy: async () => ({ Component: (await import("./pages/Plugins")).Plugins }) },
        {
          path: "plugins/:name",
          lazy: async () => ({ Component: (await import("./pages/PluginDetail")).PluginDetail }),
        },
        { path: "specs", lazy: async () => ({ Component: (await import("./pages/Specs")).Specs }) },
        { path: "simulations", lazy: async () => ({ Component: (await import("./pages/Simulations")).Simulations }) },
        {
          path: "simulations/:simulationId",
          lazy: async () => ({ Component: (await import("./pages/SimulationDetail")).SimulationDetail }),
        },
        { path: "pool", lazy: async () => ({ Component: (await import("./pages/Pool")).Pool }) },
        { path: "volumes", lazy: async () => ({ Component: (await import("./pages/Volumes")).Volumes }) },
        { path: "images", lazy: async () => ({ Component: (await import("./pages/Images")).Images }) },
        { path: "policies", lazy: async () => ({ Component: (await import("./pages/Policies")).Policies }) },
        {
          path: "policies/:policyId",
          lazy: async () => ({ Component: (await import("./pages/PolicyDetail")).PolicyDetail }),
        },
        { path: "services", lazy: async () => ({ Component: (await import("./pages/Services")).Services }) },
        {
          path: "services/:serviceId",
          lazy: async () => ({ Component: (await import("./pages/ServiceDetail")).ServiceDetail }),
        },
        {
          path: "availability",
          lazy: async () => ({ Component: (await import("./pages/Availability")).Availability }),
        },
        { path: "queues", lazy: async () => ({ Component: (await import("./pages/Queues")).Queues }) },
        { path: "usage", lazy: async () => ({ Component: (await import("./pages/Usage")).Usage }) },
        { path: "identity", lazy: async () => ({ Component: (await import("./pages/Identity")).Identity }) },
        { path: "*", lazy: async () => ({ Component: (await import("./pages/NotFound")).NotFound }) },
      ],
    },
  ]);
}
