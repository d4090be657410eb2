/** Reading counts while sets come and go, on the real kernel in a network namespace of its own. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { unknownCount } from "../../contract/traffic.ts";
import { NetlinkSocket } from "../../kernel/netlink/socket.ts";
import { openNetlinkRuleset } from "../../kernel/nftables/netlink-nftables.ts";
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip } from "../../model/testing/records.ts";
import { nftablesCounters } from "./counters.ts";
import { flatSet } from "./flat/sets.ts";

inNetns(import.meta.url, { name: "nftcounters" }, () => {
  test("a set that goes while counts are read takes no other counts with it", async (t) => {
    const ruleset = openNetlinkRuleset();
    t.after(() => ruleset.close());
    const sets = ["frontends", "nodeports", "endpoints-2"].map((name): NftOperation => {
      const set = flatSet(name) ?? assert.fail(name);
      return { kind: "add-set", set: { ...set, hasCounters: true } };
    });
    await ruleset.open({ family: "ip", table: "kube-proxy" }).transact([{ kind: "add-table", comment: "" }, ...sets]);
    const dump = NetlinkSocket.prototype.dump;
    t.mock.method(NetlinkSocket.prototype, "dump", function (this: NetlinkSocket, ...args: Parameters<typeof dump>) {
      if (args[0].bytes.includes("endpoints-2\0")) execFileSync("nft", ["delete set ip kube-proxy endpoints-2"]);
      return dump.apply(this, args);
    });
    const count = unknownCount();
    const frontends = [{ address: ip("10.96.0.1"), port: 80, count }];
    const name = servicePortName("shop", "web", "http", "TCP");
    const [remark] = await nftablesCounters.fill([{ name, family: "IPv4", frontends, endpoints: [] }]);
    assert.match(remark ?? "", /^Elements count the connections/);
    assert.equal(count.counted, 0);
  });
});
