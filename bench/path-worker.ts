/**
 * One layout with its cluster in a namespace of its own. Argument: a PathTask as JSON. Writes a line when the cluster is in the
 * kernel, and then answers ways.
 */
import type { LayoutName } from "../src/dataplane/nftables/layout-name.ts";
import { makeReachable } from "./cluster.ts";
import { answerWays } from "./connect-arms.ts";
import { NftSubject } from "./nftables-subject.ts";

export interface PathTask {
  readonly layout: LayoutName;
  readonly services: number;
}

const ENDPOINTS = 5;

const { layout, services }: PathTask = JSON.parse(process.argv[2] ?? "{}");
makeReachable();
const subject = new NftSubject(ENDPOINTS, layout);
subject.load(services);
await subject.fullSync(false);
await answerWays(services, ENDPOINTS);
