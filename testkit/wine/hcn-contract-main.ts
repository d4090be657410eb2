/** The HCN contract over the real interface, with the library of `fake-hns.c`. */
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { openHcn } from "../../src/modes/kernelspace/hcn/computenetwork.ts";
import type { HcnCalls } from "../../src/modes/kernelspace/hcn/hcn-calls.ts";
import { runHcnContract } from "../../src/modes/kernelspace/hcn/testing/hcn-contract.ts";

const file = process.env.FAKE_HNS_STATE ?? "";
const notices = process.env.FAKE_HNS_NOTICES ?? "";
let calls: HcnCalls | undefined;

/** The contract's initial host. */
const CONTRACT_STATE = [
  "V 15 5",
  "C 2",
  'N 10000000-0000-4000-8000-000000000001 {"Name":"cbr0","Type":"L2Bridge","Ipams":[{"Subnets":[{"IpAddressPrefix":"10.180.0.0/16"}]}]}',
  'E 20000000-0000-4000-8000-000000000002 {"Name":"pod-1","HostComputeNetwork":"10000000-0000-4000-8000-000000000001","IpConfigurations":[{"IpAddress":"10.180.0.10"}],"MacAddress":"00-15-5D-00-00-01"}',
  "",
].join("\n");

runHcnContract({
  name: "under Wine",
  async open() {
    writeFileSync(file, CONTRACT_STATE);
    calls ??= openHcn();
    return {
      calls,
      async setVersion(major, minor) {
        writeFileSync(file, readFileSync(file, "utf8").replace(/^V .*$/m, `V ${major} ${minor}`));
      },
      async notify(type) {
        appendFileSync(notices, `${type}\n`);
      },
    };
  },
});
