// The frame of every page: navigation, header, and the page itself.
import {
  AlertOutlined,
  ApartmentOutlined,
  ApiOutlined,
  AppstoreOutlined,
  CloudServerOutlined,
  ClusterOutlined,
  CodeSandboxOutlined,
  DashboardOutlined,
  DatabaseOutlined,
  DeploymentUnitOutlined,
  ExperimentOutlined,
  HddOutlined,
  KeyOutlined,
  LockOutlined,
  LogoutOutlined,
  MenuOutlined,
  MoonOutlined,
  OrderedListOutlined,
  PieChartOutlined,
  ProfileOutlined,
  SafetyCertificateOutlined,
  SafetyOutlined,
  SlidersOutlined,
  SunOutlined,
  SwapOutlined,
  TagsOutlined,
  TeamOutlined,
  UserOutlined,
  WalletOutlined,
} from "@ant-design/icons";
import { Badge, Button, Drawer, Dropdown, Layout, Menu, type MenuProps, Spin, Tooltip } from "antd";
import { Suspense, useEffect, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, Outlet, ScrollRestoration, useLocation, useNavigate, useNavigation } from "react-router";
import { useFeed } from "../feed";
import { usePrefs } from "../prefs";
import { useActiveAlarms } from "../queries";
import { useSession } from "../session";
import { Logo } from "./Logo";

const { Header, Sider, Content } = Layout;

export function Shell() {
  const { t } = useTranslation();
  const moving = useNavigation().state === "loading";
  // On narrow screens the navigation is behind a button.
  const [open, setOpen] = useState(false);
  const { pathname } = useLocation();
  // biome-ignore lint/correctness/useExhaustiveDependencies: going somewhere closes it
  useEffect(() => setOpen(false), [pathname]);
  return (
    <Layout className="yh-shell">
      <a className="yh-skip" href="#content">
        {t("nav.skip")}
      </a>
      <Sider width={212} className="yh-sider" theme="light">
        <Link to="/" className="yh-brand" aria-label={t("nav.overview")}>
          <Logo />
          <span>
            <strong>Yunhe</strong>
            <small>{t("brand.tagline")}</small>
          </span>
        </Link>
        <Navigation />
      </Sider>
      <Layout>
        <Header className="yh-header">
          <div className={moving ? "yh-progress yh-progress-on" : "yh-progress"} />
          <Button
            type="text"
            className="yh-menu-button"
            icon={<MenuOutlined aria-hidden />}
            aria-label={t("nav.label")}
            onClick={() => setOpen(true)}
          />
          <Drawer
            open={open}
            onClose={() => setOpen(false)}
            placement="left"
            size={250}
            title="Yunhe"
            className="yh-drawer"
          >
            <Navigation />
          </Drawer>
          <FeedStatus />
          <span className="yh-grow" />
          <LanguageSwitch />
          <ThemeSwitch />
          <UserMenu />
        </Header>
        <Content className="yh-content" id="content" tabIndex={-1}>
          <Suspense fallback={<Spin className="yh-page-spin" />}>
            <Outlet />
          </Suspense>
        </Content>
      </Layout>
      <ScrollRestoration />
    </Layout>
  );
}

function Navigation() {
  const { t } = useTranslation();
  const { can } = useSession();
  const { pathname } = useLocation();
  const active = useActiveAlarms().data ?? 0;
  const item = (path: string, icon: React.ReactNode, label: string) => ({
    key: path,
    icon,
    label: <Link to={path}>{label}</Link>,
  });
  const items: MenuProps["items"] = [
    item("/", <DashboardOutlined aria-hidden />, t("nav.overview")),
    item("/jobs", <ProfileOutlined aria-hidden />, t("nav.jobs")),
    ...(can("monitor.read")
      ? [
          {
            key: "/alarms",
            icon: <AlertOutlined aria-hidden />,
            label: (
              <Link to="/alarms">
                {t("nav.alarms")} <Badge count={active} size="small" data-testid="alarm-badge" />
              </Link>
            ),
          },
        ]
      : []),
    {
      type: "group",
      key: "resources",
      label: t("nav.resources"),
      children: [
        item("/topology", <DeploymentUnitOutlined aria-hidden />, t("nav.topology")),
        item("/centers", <ApartmentOutlined aria-hidden />, t("nav.centers")),
        item("/network", <SwapOutlined aria-hidden />, t("nav.network")),
        item("/nodes", <ClusterOutlined aria-hidden />, t("nav.nodes")),
        item("/resources", <DatabaseOutlined aria-hidden />, t("nav.registry")),
        item("/tags", <TagsOutlined aria-hidden />, t("nav.tags")),
        ...(can("adapters.read")
          ? [
              item("/plugins", <ApiOutlined aria-hidden />, t("nav.plugins")),
              item("/access", <SafetyCertificateOutlined aria-hidden />, t("nav.access")),
            ]
          : []),
        item("/specs", <AppstoreOutlined aria-hidden />, t("nav.specs")),
        item("/images", <CodeSandboxOutlined aria-hidden />, t("nav.images")),
        ...(can("jobs.read") ? [item("/pool", <PieChartOutlined aria-hidden />, t("nav.pool"))] : []),
        ...(can("jobs.read") ? [item("/volumes", <HddOutlined aria-hidden />, t("nav.volumes"))] : []),
      ],
    },
    {
      type: "group",
      key: "operation",
      label: t("nav.operation"),
      children: [
        ...(can("jobs.read")
          ? [
              item("/allocations", <LockOutlined aria-hidden />, t("nav.allocations")),
              item("/services", <CloudServerOutlined aria-hidden />, t("nav.services")),
            ]
          : []),
        ...(can("scheduler.read")
          ? [
              item("/policies", <SlidersOutlined aria-hidden />, t("nav.policies")),
              item("/queues", <OrderedListOutlined aria-hidden />, t("nav.queues")),
            ]
          : []),
        ...(can("jobs.read") ? [item("/simulations", <ExperimentOutlined aria-hidden />, t("nav.simulations"))] : []),
        ...(can("monitor.read") ? [item("/availability", <SafetyOutlined aria-hidden />, t("nav.availability"))] : []),
        ...(can("metering.read") ? [item("/usage", <WalletOutlined aria-hidden />, t("nav.usage"))] : []),
        item(
          "/identity",
          can("identity.read") ? <TeamOutlined aria-hidden /> : <KeyOutlined aria-hidden />,
          can("identity.read") ? t("nav.identity") : t("nav.keys"),
        ),
      ],
    },
  ];
  const first = `/${pathname.split("/")[1]}`;
  // Connecting is how a center comes in.
  const selected = first === "/connect" ? "/centers" : first;
  return (
    <nav aria-label={t("nav.label")}>
      <Menu mode="inline" items={items} selectedKeys={[selected]} className="yh-menu" />
    </nav>
  );
}

function FeedStatus() {
  const { t } = useTranslation();
  const { status } = useFeed();
  return (
    <Tooltip title={t(`feed.${status}.help`)}>
      <span className={`yh-feed yh-feed-${status}`} role="status">
        <i aria-hidden />
        {t(`feed.${status}.label`)}
      </span>
    </Tooltip>
  );
}

export function LanguageSwitch() {
  const { language, setLanguage } = usePrefs();
  const next = language === "zh" ? "en" : "zh";
  return (
    <Button
      type="text"
      data-testid="language"
      lang={next === "zh" ? "zh-CN" : "en"}
      aria-label={next === "zh" ? "切换到中文" : "Switch to English"}
      onClick={() => setLanguage(next)}
    >
      {next === "zh" ? "中文" : "English"}
    </Button>
  );
}

export function ThemeSwitch() {
  const { t } = useTranslation();
  const { theme, setTheme } = usePrefs();
  const next = theme === "dark" ? "light" : "dark";
  return (
    <Button
      type="text"
      data-testid="theme"
      aria-label={t(next === "dark" ? "theme.toDark" : "theme.toLight")}
      icon={theme === "dark" ? <SunOutlined aria-hidden /> : <MoonOutlined aria-hidden />}
      onClick={() => setTheme(next)}
    />
  );
}

function UserMenu() {
  const { t } = useTranslation();
  const { state, signOut } = useSession();
  const navigate = useNavigate();
  if (state.phase !== "signedIn") return null;
  const { user } = state;
  return (
    <Dropdown
      trigger={["click"]}
      menu={{
        items: [
          {
            key: "who",
            disabled: true,
            label: (
              <span className="yh-who">
                <strong>{user.name || user.userId}</strong>
                <small>
                  {user.tenantId} · {t(`role.${user.role}`)}
                </small>
              </span>
            ),
          },
          { type: "divider" },
          { key: "keys", icon: <KeyOutlined aria-hidden />, label: t("nav.keys") },
          { key: "out", icon: <LogoutOutlined aria-hidden />, label: t("session.signOut") },
        ],
        onClick: ({ key }) => {
          if (key === "keys") void navigate("/identity?tab=keys");
          if (key === "out") signOut();
        },
      }}
    >
      <Button type="text" icon={<UserOutlined aria-hidden />} data-testid="user">
        {user.name || user.userId}
      </Button>
    </Dropdown>
  );
}
