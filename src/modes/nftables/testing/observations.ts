/** Observations of a backend's work: the operations of a sync, and the contents of the kernel in memory. */
import { local, port } from "../../../../testkit/dataplane/test-cluster.ts";
import { elementKey, type NftElement } from "../../../kernel/nftables/ruleset.ts";
import { type BackendRig, clusterChain, newModel, operationText, type TestModel } from "./backend-rig.ts";

/** The operations of one sync, as text. */
export async function texts(rig: BackendRig, options?: { readonly full?: boolean }): Promise<string[]> {
  return (await rig.operationsOf(options)).map(operationText);
}

/** The elements of a set or map by key. */
export async function elementsOf({ kernel }: BackendRig, set: string): Promise<Map<string, NftElement>> {
  const content = await kernel.connectAnother().read();
  return new Map((content?.sets.get(set)?.elements ?? []).map((element) => [elementKey(element.key), element]));
}

/** The chains that belong to service ports. */
export async function chainsOf({ kernel }: BackendRig): Promise<string[]> {
  const content = await kernel.connectAnother().read();
  return [...(content?.chains.keys() ?? [])].filter((name) => name.includes("/")).sort();
}

/** A service port `ns/a:p`, and the chain of its cluster IP. */
export const A = port("a", "10.96.0.1");
export const CHAIN = clusterChain(A);

/** A synced model with one service port `ns/a:p` and one local endpoint. */
export async function modelWithA(): Promise<TestModel> {
  const model = newModel();
  model.set(A, [local("10.180.0.1")]);
  await model.rig.sync();
  return model;
}

/** Objects in an order that does not depend on their creation. */
export function sorted(objects: readonly unknown[]): string[] {
  return objects.map((object) => JSON.stringify(object)).sort();
}
