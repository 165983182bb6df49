// Who is signed in. The key is checked by asking the platform; when it stops
// being valid, the session ends and the sign-in page says so.
import { createContext, type ReactNode, use, useCallback, useEffect, useMemo, useState } from "react";
import { type Clients, call, loadKey, setKey } from "./api";
import type { User } from "./gen/yunhe/identity/v1/identity_pb";
import { isUnauthenticated } from "./lib/errors";

export type Permission =
  | "registry.write"
  | "jobs.read"
  | "jobs.write"
  | "scheduler.read"
  | "scheduler.write"
  | "metering.read"
  | "monitor.read"
  | "identity.read"
  | "identity.write"
  | "audit.read"
  | "adapters.read"
  | "adapters.write";

export type SessionState =
  | { phase: "checking" }
  /** The key may be good, but the platform could not be asked. */
  | { phase: "unreachable"; error: unknown }
  | { phase: "signedOut"; expired: boolean }
  | { phase: "signedIn"; user: User; keyId: string; permissions: ReadonlySet<string> };

export interface Session {
  state: SessionState;
  clients: Clients;
  /** Signs in with a key; rejects, and forgets the key, if the platform refuses it. */
  signIn: (key: string) => Promise<void>;
  signOut: () => void;
  /** Ends the session because the platform no longer accepts the key. */
  expire: () => void;
  /** Asks again after "unreachable". */
  retry: () => void;
  can: (permission: Permission) => boolean;
}

const SessionContext = createContext<Session | undefined>(undefined);

export function useSession(): Session {
  const session = use(SessionContext);
  if (!session) throw new Error("useSession outside SessionProvider");
  return session;
}

/** The clients of the platform. */
export function useClients(): Clients {
  return useSession().clients;
}

export function SessionProvider({ clients, children }: { clients: Clients; children: ReactNode }) {
  const [state, setState] = useState<SessionState>({ phase: "checking" });

  const ask = useCallback(async (): Promise<SessionState> => {
    const answer = await clients.identity.whoAmI({}, call());
    if (!answer.user) throw new Error("the platform did not say who the key belongs to");
    return { phase: "signedIn", user: answer.user, keyId: answer.keyId, permissions: new Set(answer.permissions) };
  }, [clients]);

  const check = useCallback(() => {
    setState({ phase: "checking" });
    ask().then(setState, (error: unknown) => {
      if (isUnauthenticated(error)) {
        setKey("");
        setState({ phase: "signedOut", expired: true });
      } else setState({ phase: "unreachable", error });
    });
  }, [ask]);

  useEffect(() => {
    if (loadKey()) check();
    else setState({ phase: "signedOut", expired: false });
  }, [check]);

  const session = useMemo<Session>(
    () => ({
      state,
      clients,
      signIn: async (key) => {
        setKey(key);
        try {
          setState(await ask());
        } catch (error) {
          setKey("");
          throw error;
        }
      },
      signOut: () => {
        setKey("");
        setState({ phase: "signedOut", expired: false });
      },
      expire: () => {
        setKey("");
        setState((now) => (now.phase === "signedIn" ? { phase: "signedOut", expired: true } : now));
      },
      retry: check,
      can: (permission) => state.phase === "signedIn" && state.permissions.has(permission),
    }),
    [state, clients, ask, check],
  );
  return <SessionContext value={session}>{children}</SessionContext>;
}
