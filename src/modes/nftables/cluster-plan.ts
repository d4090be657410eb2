/** Plans the nftables mode's rules of one node without a kernel: the operations of a first sync without a table. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { OfflineNode } from "../../contract/inspect/offline-node.ts";
import type { ModeRenderer } from "../../contract/rendering.ts";
import { messageLines } from "../../kernel/nftables/netlink-dump.ts";
import { encodeTransaction } from "../../kernel/nftables/netlink-transaction.ts";
import { LAYOUTS } from "../../kernel/nftables/netlink-values.ts";
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import { elementKey, type NftElement } from "../../kernel/nftables/ruleset.ts";
import { libnftablesJson, type NftTable, tableJson, tableOf } from "../../kernel/nftables/ruleset-table.ts";
import { tableText } from "../../kernel/nftables/ruleset-text.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { layoutOf } from "./config.ts";
import { sameElement } from "./draft.ts";
import { LAYOUTS as TABLE_LAYOUTS } from "./layouts.ts";
import { FAMILIES, TABLE } from "./names.ts";
import { planInput } from "./plan-input.ts";
import { planWhole, reconcile } from "./reconcile.ts";

/** A planned table, and the operations that create it. */
export interface NftablesPlan {
  readonly operations: readonly NftOperation[];
  readonly table: NftTable;
}

export type NftablesPlanData = Pick<NftablesPlan, "table">;

/**
 * The part of a planned table that belongs to one Service: what its ports alone would add to a table, limited to what
 * the table of the whole cluster has. Addresses that another Service owns are left out.
 *
 * @param service `namespace/name`
 */
async function tableOfService(
  whole: NftTable,
  node: OfflineNode,
  config: KubeProxyConfig,
  service: string,
): Promise<NftTable> {
  const [own, empty] = await Promise.all([
    planNftables(node, config, (port) => port.name.service === service),
    planNftables(node, config, () => false),
  ]);
  return partOf(whole, partOf(own.table, empty.table, false), true);
}

const isSameElement = (a: NftElement) => (b: NftElement) =>
  elementKey(a.key) === elementKey(b.key) && sameElement(a, b);

/** The part of a table that `other` has too, or lacks if `isCommon` is false; sets without such elements are left out. */
function partOf(table: NftTable, other: NftTable, isCommon: boolean): NftTable {
  const chains = new Set(other.chains.map(({ name }) => name));
  return {
    ...table,
    chains: table.chains.filter(({ name }) => chains.has(name) === isCommon),
    sets: table.sets.flatMap((one) => {
      const known = other.sets.find(({ set }) => set.name === one.set.name);
      const others = known?.elements ?? [];
      const elements = one.elements.filter((element) => others.some(isSameElement(element)) === isCommon);
      const isWhole = isCommon ? known !== undefined && others.length === 0 : known === undefined;
      return elements.length === 0 && !isWhole ? [] : [{ ...one, elements }];
    }),
  };
}

/** Plans a whole cluster, service ports in key order. */
export async function planNftables(
  node: OfflineNode,
  kubeProxyConfig: KubeProxyConfig,
  isWanted: (port: ServicePort) => boolean = () => true,
): Promise<NftablesPlan> {
  const { family, state } = node;
  const layout = TABLE_LAYOUTS[layoutOf(kubeProxyConfig.nftables)];
  const { config, facts } = planInput(kubeProxyConfig, node);
  const services = new Map([...state.services].filter(([, port]) => isWanted(port)));
  const { signal } = new AbortController();
  const planned = await planWhole({ layout, config, facts }, { services, endpoints: state.endpoints }, signal);
  const draft = await reconcile(undefined, planned.wanted, planned.state, { deferred: new Set(), signal });
  const operations = [...draft.operations()];
  return { operations, table: tableOf(FAMILIES[family], TABLE, operations) };
}

/** The netlink messages of the first sync, attribute by attribute. */
async function messageDump({ operations, table: { family, name } }: NftablesPlan): Promise<string> {
  const { batch } = await encodeTransaction({ layout: LAYOUTS[family], table: name }, operations);
  batch.finish();
  return `${[...messageLines(batch.messages)].join("\n")}\n`;
}

export const renderNftables: ModeRenderer<NftablesPlanData> = async (node, { config, form, service }) => {
  const plan = await planNftables(node, config);
  if (form === "netlink") {
    if (service !== undefined) throw new Error("--output netlink prints a whole sync: omit --service");
    return { kind: "text", text: await messageDump(plan), tool: `table ${plan.table.family} ${plan.table.name}` };
  }
  const table = service === undefined ? plan.table : await tableOfService(plan.table, node, config, service);
  if (form === "json") return { kind: "items", items: tableJson(table), data: { table }, document: libnftablesJson };
  return { kind: "text", text: tableText(table), tool: undefined };
};
