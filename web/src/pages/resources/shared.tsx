// What the pages of the registry share.
import { useQuery } from "@tanstack/react-query";
import { useCallback } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Tag } from "../../components/bits";
import type { ResourceState } from "../../gen/yunhe/registry/v1/resource_pb";
import { NONE } from "../../lib/format";
import { knownType, resourceTone } from "../../lib/registry";
import { resourceStateName } from "../../lib/resourcefile";
import { useClients } from "../../session";

/** The types of resource never change while a server runs. */
export function useResourceTypes() {
  const { resources } = useClients();
  return useQuery({
    queryKey: ["resource-types"],
    queryFn: async ({ signal }) => (await resources.listResourceTypes({}, call(signal))).types,
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export function useTypeTitle(): (type: string) => string {
  const { t } = useTranslation();
  return useCallback(
    (type) => {
      const known = knownType(type);
      return known ? t(`registry.types.${known}`) : type;
    },
    [t],
  );
}

export function ResourceStateTag({ state }: { state: ResourceState }) {
  const { t } = useTranslation();
  const name = resourceStateName(state);
  return <Tag tone={resourceTone(state)} text={name ? t(`registry.states.${name}`) : NONE} />;
}
