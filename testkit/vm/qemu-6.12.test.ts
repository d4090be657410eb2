/** Debian's kernel 6.12 in qemu: conntrack as a module, for the ebpf mode. Part of `npm run test:all`. */
import "../needs/qemu.ts";
import { testInMachine } from "./machine-tests.ts";

testInMachine("qemu-6.12");
