import assert from "node:assert/strict";
import { test } from "node:test";
import { HcnError, hcnErrorClass } from "./hcn-error.ts";

test("codes of Win32 are taken out of the HRESULT, others stay whole", () => {
  assert.equal(new HcnError("HcnOpenEndpoint", 0x8007_0490 | 0, "").code, 0x490);
  assert.equal(new HcnError("HcnCreateLoadBalancer", 0x803b_0013 | 0, "").code, 0x803b_0013);
  assert.equal(new HcnError("HcnModifyLoadBalancer", 0x8000_4001 | 0, "").code, 0x8000_4001);
});

test("a message names the call, says it in words, and keeps the record", () => {
  const record = '{"Success":false,"Error":"The specified port already exists. ","ErrorCode":2151350291}';
  const { message } = new HcnError("HcnCreateLoadBalancer", 0x803b_0013 | 0, record);
  assert.equal(message, `HcnCreateLoadBalancer failed: The specified port already exists (0x803b0013) ${record}`);
});

const CLASSES = [
  [0x8007_0490, "absent"],
  [0x803b_0001, "absent"],
  [0x8007_00b7, "taken"],
  [0x803b_0013, "taken"],
  [0x8000_4001, "unsupported"],
  [0x8007_0005, "denied"],
  [0x803b_001c, "refused"],
  [0x803b_0020, "down"],
  [0x8007_06ba, "down"],
  [0x803b_0007, "transient"],
  [0x8123_4567, "transient"],
] as const;
for (const [hresult, expected] of CLASSES) {
  test(`0x${hresult.toString(16)} is ${expected}`, () => {
    assert.equal(hcnErrorClass(new HcnError("HcnX", hresult | 0, "")), expected);
  });
}

test("what is no answer of HCN has no class", () => assert.equal(hcnErrorClass(new Error("x")), undefined));
