import assert from "node:assert/strict";
import { test } from "node:test";
import { type Exec, ExecError } from "../../kernel/process.ts";
import { kernelTexts } from "./diff-rules.ts";
import { UsageError } from "./output.ts";

const answering =
  (answers: Readonly<Record<string, Partial<Awaited<ReturnType<Exec>>>>>): Exec =>
  async (file, args) => {
    const answer = answers[[file, ...args].join(" ")];
    if (answer === undefined) throw new ExecError("missing_tool", `${file}: no such program in the PATH`);
    return { status: 0, stdout: "", stderr: "", ...answer };
  };

test("each tool is asked once for each family that it knows apart", async () => {
  const exec = answering({
    "iptables-save": { stdout: "4" },
    "ip6tables-save": { stdout: "6" },
    "ipset save": { stdout: "s" },
  });
  const dumps = await kernelTexts(["iptables-save", "ipset"], ["IPv4", "IPv6"], "", exec);
  assert.deepEqual(
    dumps.map(({ kind, family, text }) => [kind, family, text]),
    [
      ["iptables-save", "IPv4", "4"],
      ["iptables-save", "IPv6", "6"],
      ["ipset", "IPv4", "s"],
    ],
  );
});

test("a table that is not there is an answer; a tool that refuses or is missing is none", async () => {
  const absent = answering({
    "nft list table ip kube-proxy": { status: 1, stderr: "Error: No such file or directory\n" },
  });
  assert.equal((await kernelTexts(["nft"], ["IPv4"], "kube-proxy", absent))[0]?.text, "");
  const refusing = answering({ "nft list table ip kube-proxy": { status: 1, stderr: "Operation not permitted\n" } });
  const refused = kernelTexts(["nft"], ["IPv4"], "kube-proxy", refusing);
  await assert.rejects(
    refused,
    (error) => error instanceof UsageError && /list table ip kube-proxy: Operation not permitted$/.test(error.message),
  );
  const missing = kernelTexts(["ipvsadm"], ["IPv4"], "", answering({}));
  await assert.rejects(
    missing,
    (error) => error instanceof UsageError && /ipvsadm: no such program/.test(error.message),
  );
});
