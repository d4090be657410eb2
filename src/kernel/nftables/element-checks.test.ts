/** What a rejected check tells about its elements. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { IpAddress } from "../../net/ip.ts";
import { NetlinkError } from "../netlink/errors.ts";
import { ElementChecks, groupNumbers } from "./element-checks.ts";
import { LAYOUTS } from "./netlink-values.ts";
import type { NftSet } from "./ruleset.ts";
import type { NftablesClient } from "./wire/nftables-client.ts";

const SET: NftSet = { name: "targets", key: ["address", "port"], isMap: false, hasTargets: true };

/** The numbers of the groups in doubt when the kernel rejects this message of each batch. */
async function inDoubt(index: number): Promise<number[]> {
  const client: Pick<NftablesClient, "check"> = {
    check: async ({ messages }) => {
      const request = { index, type: messages.typeOf(index), sequence: index };
      return { committed: false, errors: [new NetlinkError("ENOMEM", "refused", { request })], isTruncated: false };
    },
  };
  const checks = new ElementChecks(client, "kube-proxy", LAYOUTS.ip);
  const groupOf = groupNumbers();
  const ip = "10.0.0.1" as IpAddress; // canonical
  for (let port = 1; port <= 1000; port += 1)
    await checks.add(groupOf(SET), SET, { key: [ip, port], target: { ip, port } });
  return [...(await checks.refused())].sort();
}

test("of a check that is refused as a whole all elements are in doubt, and else those of the message", async () => {
  assert.deepEqual(await inDoubt(0), [0, 1, 2, 3]);
  assert.deepEqual(await inDoubt(1), [0]);
});
