/** User-mode Linux: what the host's kernel may not have. Part of `npm run test:vm`. */
import { testInMachine } from "./machine-tests.ts";

testInMachine("uml");
