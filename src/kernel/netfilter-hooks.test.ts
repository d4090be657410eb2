import assert from "node:assert/strict";
import { test } from "node:test";
import { hooksBy } from "./netfilter-hooks.ts";
import { byteReader } from "./netlink/attributes.ts";
import { NetlinkError } from "./netlink/errors.ts";
import type { NetlinkSocket } from "./netlink/socket.ts";

/** Requests, and what Linux 6.12.117 answers (from the family on). */
const ANSWERS: ReadonlyMap<string, readonly string[]> = new Map([
  [
    "1c000000000c01030000000000000000020000000800010000000000",
    [
      "020000001100050062725f6e657466696c746572000000001300040069705f7361626f746167655f696e000008000100000000000800020080000000",
    ],
  ],
  [
    "1c000000000c01030000000000000000020000000800010000000001",
    [
      "020000000e0005006e665f7461626c6573000000160004006e66745f646f5f636861696e5f6970763400000008000100000000010800020000000000300006800800020000000001240001800a0001006f746865720000000a000300696e7075740000000500020002000000",
      "020000000e0005006e665f7461626c6573000000160004006e66745f646f5f636861696e5f696e6574000000080001000000000108000200000000002c00068008000200000000012000018007000100667700000a000300696e7075740000000500020001000000",
      "020000000b0005006e665f6e61740000190004006e665f6e61745f697076345f6c6f63616c5f696e0000000008000100000000010800020000000064",
    ],
  ],
  [
    "1c000000000c01030000000000000000020000000800010000000002",
    [
      "02000000140004006e665f686f6f6b5f72756e5f62706600080001000000000208000200fffffffb1800068008000200000000020c0001800800010000000001",
    ],
  ],
  [
    "1c000000000c01030000000000000000020000000800010000000004",
    ["020000001a00040061707061726d6f725f69705f706f7374726f757465000000080001000000000408000200ffffff1f"],
  ],
  [
    "1c000000000c010300000000000000000a0000000800010000000000",
    [
      "0a000000140004006e665f686f6f6b5f72756e5f62706600080001000000000008000200000000071800068008000200000000020c0001800800010000000002",
    ],
  ],
  [
    "1c000000000c010300000000000000000a0000000800010000000001",
    [
      "0a0000000e0005006e665f7461626c6573000000160004006e66745f646f5f636861696e5f696e6574000000080001000000000108000200000000002c00068008000200000000012000018007000100667700000a000300696e7075740000000500020001000000",
    ],
  ],
  [
    "1c000000000c01030000000000000000070000000800010000000002",
    [
      "070000000e0005006e665f7461626c6573000000180004006e66745f646f5f636861696e5f62726964676500080001000000000208000200000000002800068008000200000000011c000180060001006200000006000300630000000500020007000000",
    ],
  ],
  [
    "24000000000c010300000000000000000500000008000100000000000700030064300000",
    [
      "05000000120005006e665f666c6f775f7461626c650000001c0004006e665f666c6f775f6f66666c6f61645f69705f686f6f6b0008000100000000000800020000000000",
      "050000000e0005006e665f7461626c65730000001e0004006e66745f646f5f636861696e5f696e65745f696e6772657373000000080001000000000008000200000000072800068008000200000000011c00018008000100696e670008000300696e67000500020001000000",
    ],
  ],
  [
    "24000000000c010300000000000000000500000008000100000000010700030064300000",
    [
      "050000000e0005006e665f7461626c6573000000180004006e66745f646f5f636861696e5f6e657464657600080001000000000108000200000000042800068008000200000000011c000180070001006e64000007000300656700000500020005000000",
    ],
  ],
]);

/** @param refuse the code of the error for a request of this family, at this hook. */
function kernel(refuse: (family: number, hook: number) => `E${string}` | undefined): Pick<NetlinkSocket, "dump"> {
  return {
    dump: async ({ bytes }, onReply) => {
      const code = refuse(bytes[16] ?? 0, bytes[27] ?? 0);
      if (code !== undefined) throw new NetlinkError(code, code);
      for (const text of ANSWERS.get(Buffer.from(bytes).toString("hex")) ?? []) {
        const answer = Buffer.from(text, "hex");
        const head = { type: 0x0c00, flags: 2, sequence: 1, portId: 1 };
        onReply({ ...head, input: byteReader(answer), start: 0, end: answer.length });
      }
    },
  };
}

test("entries as Linux 6.12 lists them: functions, base chains, programs and devices", async () => {
  const found = await hooksBy(
    kernel(() => undefined),
    ["d0"],
  );
  const words = found?.map(({ family, device, hook, priority, function: name, module, chain, program }) =>
    [device ?? family, hook, priority, name, module, chain, program].filter((word) => word !== undefined).join(" "),
  );
  assert.deepEqual(words, [
    "ip prerouting -2147483648 ip_sabotage_in br_netfilter",
    "ip input 0 nft_do_chain_ipv4 nf_tables ip other input",
    "ip input 0 nft_do_chain_inet nf_tables inet fw input",
    "ip input 100 nf_nat_ipv4_local_in nf_nat",
    "ip forward -5 nf_hook_run_bpf 1",
    "ip postrouting -225 apparmor_ip_postroute",
    "ip6 prerouting 7 nf_hook_run_bpf 2",
    "ip6 input 0 nft_do_chain_inet nf_tables inet fw input",
    "bridge forward 0 nft_do_chain_bridge nf_tables bridge b c",
    "d0 ingress 0 nf_flow_offload_ip_hook nf_flow_table",
    "d0 ingress 7 nft_do_chain_inet_ingress nf_tables inet ing ing",
    "d0 egress 4 nft_do_chain_netdev nf_tables netdev nd eg",
  ]);
});

test("a kernel without a list of hooks, and what a kernel or a namespace does not have", async () => {
  for (const code of ["EINVAL", "EOPNOTSUPP"] as const) {
    const none = kernel(() => code);
    assert.equal(await hooksBy(none, ["d0"]), undefined);
  }
  // No bridges, no egress hooks, and a device that is gone.
  const part = kernel((family, hook) => {
    if (family === 5) return hook === 1 ? "EOPNOTSUPP" : "ENODEV";
    return family === 7 ? "EPROTONOSUPPORT" : undefined;
  });
  assert.deepEqual([...new Set((await hooksBy(part, ["d0"]))?.map(({ family }) => family))], ["ip", "ip6"]);
  await assert.rejects(
    hooksBy(
      kernel(() => "EPERM"),
      [],
    ),
    { code: "EPERM" },
  );
});
