/** The objects, and what `explain` says of their Services. */
import { objectKeyText } from "../../cluster/objects.ts";
import { modeNamed } from "../../dataplane/registry.ts";
import { allPortKeys, explainedCluster, explainPorts } from "../../explain/explained-cluster.ts";
import type { Objects } from "../../explain/part-of-cluster.ts";
import { partOf } from "../../explain/part-of-cluster.ts";
import { withTraffic } from "../../explain/traffic.ts";
import type { InspectChoices } from "../inspect-options.ts";
import { objectsList } from "./objects-list.ts";
import type { SysdumpPart } from "./part.ts";

interface AnswersOptions {
  /** Reads the objects; asked once. */
  readonly objects: () => Promise<{ readonly objects: Objects; readonly problems: readonly string[] }>;
  readonly choices: () => Promise<InspectChoices>;
  /** Of how many Services at most. */
  readonly most: number;
}

export function answerParts({ objects, choices, most }: AnswersOptions): readonly SysdumpPart[] {
  let reading: ReturnType<AnswersOptions["objects"]> | undefined;
  const read = () => {
    reading ??= objects();
    return reading;
  };
  return [
    {
      name: "objects/cluster.json",
      read: async () => `${JSON.stringify(objectsList((await read()).objects), undefined, 1)}\n`,
    },
    { name: "objects-problems.txt", read: async () => (await read()).problems.join("") },
    { name: "explain.json", read: async () => await explained((await read()).objects, await choices(), most) },
  ];
}

async function explained(all: Objects, { config, families }: InspectChoices, most: number): Promise<string> {
  const names = all.services.map(objectKeyText).sort();
  const warnings = new Set<string>();
  const cluster = await explainedCluster(partOf(all, new Set(names.slice(0, most))), config, families, (message) =>
    warnings.add(message),
  );
  const inspection = await modeNamed(config.mode).loadInspection();
  const servicePorts = await withTraffic(inspection, await explainPorts(cluster, allPortKeys(cluster)));
  const leftOut = Math.max(0, names.length - most);
  return `${JSON.stringify({ servicesLeftOut: leftOut, warnings: [...warnings], servicePorts }, undefined, 1)}\n`;
}
