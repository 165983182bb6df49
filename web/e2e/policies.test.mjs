// The life of a policy while jobs keep arriving, by all three ways: the
// command line validates, creates, simulates and issues it, the API refuses a
// broken change, makes a version and compares two, the console ends the
// comparison and rolls back. The platform is never started again, and every
// job of the load succeeds.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { bin, root, skip, start } from "./platform.mjs";

const FLOW = `policy_id: flow
title: Cheap work stays cheap
match_rules:
  - expression: job.tenant == "default" && "flow" in job.labels
rules:
  weights: {lowest-price: 1}
`;

describe("policies under load", { skip, timeout: 900_000 }, () => {
  let p;
  let page;
  let load;
  let testId;
  const file = () => join(p.dir, "flow.yaml");

  before(async () => {
    p = await start("policies", ["--centers", join(root, "examples/centers.yaml")]);
    page = p.page;
    await p.until(async () => (await p.rest("GET", "/v1/nodes")).nodes.length === 3, "three nodes are reported");
    load = work();
    await p.until(() => load.ids.length >= 6, "jobs are submitted");
  });
  after(async () => {
    await load?.stop();
    await p?.end();
  });

  const submit = async (name) =>
    (
      await p.rest("POST", "/v1/jobs", {
        job: {
          name,
          labels: { flow: "1" },
          tasks: [{ name: "t", command: "true", imageId: "host", resourceSpecId: "small", replicaNumber: 1 }],
        },
      })
    ).jobId;
  const queued = async () => Number((await p.rest("GET", "/v1/job-stats")).jobsByState.queued ?? 0);

  // Submits jobs until it is stopped, three at a time, and not faster than they are placed.
  function work() {
    const ids = [];
    let on = true;
    const done = (async () => {
      while (on) {
        for (const name of ["load-1", "load-2", "load-3"]) ids.push(await submit(name));
        await p.until(async () => !on || (await queued()) < 12, "the load is placed");
        await new Promise((next) => setTimeout(next, 100));
      }
    })();
    return {
      ids,
      stop: () => {
        on = false;
        return done;
      },
    };
  }

  // The command line: its output, and its exit status where it is expected to fail.
  const cli = (...args) =>
    new Promise((done, failed) =>
      execFile(bin, args, { env: { ...process.env, YUNHE_SERVER: p.url, YUNHE_KEY: p.key } }, (error, out, err) =>
        error && !Number.isInteger(error.code) ? failed(error) : done({ code: error?.code ?? 0, out, err }),
      ),
    );
  const ok = async (...args) => {
    const { code, out, err } = await cli(...args);
    assert.equal(code, 0, `${args.join(" ")}: ${err}`);
    return out;
  };
  const connect = async (method, body) => {
    const answer = await fetch(`${p.url}/yunhe.policies.v1.PolicyService/${method}`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${p.key}`,
        "Connect-Protocol-Version": "1",
        "Content-Type": "application/json",
      },
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200, `${method}: ${await answer.clone().text()}`);
    return answer.json();
  };

  // By what a job submitted now is decided; the load goes on meanwhile.
  const decidedBy = async (name) => {
    const job = await submit(name);
    const explained = await p.until(async () => {
      const found = await p.rest("GET", `/v1/jobs/${job}/explain`);
      return found.decisions.some((d) => d.attempt > 0) && found;
    }, `${name} is placed`);
    const [decision] = explained.decisions;
    return { job, by: decision.policy, at: decision.aiCenterId, scored: scoredBy(decision) };
  };
  // The policies that weighed in a decision.
  const scoredBy = (decision) =>
    decision.candidates.find((c) => c.chosen).scores.flatMap((s) => (s.weight > 0 ? [s.policyId] : []));
  const still = async (what) => {
    const n = load.ids.length;
    await p.until(() => load.ids.length > n, `the load goes on ${what}`);
  };

  test("the command line points into a wrong expression, and accepts a right one", async () => {
    writeFileSync(file(), FLOW.replace('== "default"', "== 5"));
    const wrong = await cli("policy", "validate", file());
    assert.notEqual(wrong.code, 0);
    assert.match(wrong.out + wrong.err, /match_rules\[0\]/);
    assert.match(wrong.out + wrong.err, /1:12|line 1, column 12/);
    writeFileSync(file(), FLOW);
    await ok("policy", "validate", file());
    await ok("policy", "create", file(), "--note", "first");
    assert.ok(!(await decidedBy("not-yet")).by.includes("flow"), "a draft decides nothing");
  });

  test("it is simulated, issued to a tenant, and the next job follows it", async () => {
    await ok("policy", "simulate", "--policy", "flow", "--jobs", "50");
    await ok("policy", "issue", "flow", "--tenant", "default", "--reason", "from the command line");
    const { by, scored, job } = await decidedBy("follows");
    assert.equal(by, "flow@1");
    assert.deepEqual(scored, ["lowest-price"]);
    assert.match(await ok("job", "explain", job, "-o", "json"), /"policy": "flow@1"/);
    await still("after issuing");
  });

  test("the API refuses what is wrong at its place, and makes a second version", async () => {
    const document = {
      policyId: "flow",
      title: "Safe",
      matchRules: [{ expression: '"flow" in job.labels' }],
      rules: {
        weights: { "highest-security": 1 },
        filters: [{ filterId: "grade", expression: "security_grade > high" }],
      },
    };
    const { valid, problems } = await connect("ValidatePolicy", { document });
    assert.ok(!valid);
    assert.deepEqual(
      problems.map((x) => [x.field, x.line, x.column]),
      [["rules.filters[0].expression", 1, 18]],
    );
    document.rules.filters[0].expression = "security_grade >= 3";
    const changed = await p.rest("PUT", "/v1/policy-records/flow?base_version=1&note=second", document);
    assert.equal(changed.latestVersion, "2");
    assert.equal((await decidedBy("still-first")).by, "flow@1", "what is not issued decides nothing");
    const compared = await connect("StartPolicyTest", {
      policyId: "flow",
      arms: [
        { version: 1, percent: 50 },
        { version: 2, percent: 50 },
      ],
    });
    testId = compared.testId;
    await p.until(async () => {
      const { arms } = await p.rest("GET", `/v1/policy-tests/${testId}`);
      return arms.every((arm) => Number(arm.result.ended) > 0);
    }, "both arms have decided about jobs of the load that ended");
  });

  test("the console shows both, ends the comparison with a winner, and rolls back", async () => {
    await page.goto(`${p.url}/policies/flow?tab=tests`);
    await page.getByTestId("policy-tests").getByRole("button").first().click();
    await p.dialog().getByTestId("arms").getByText("flow@2").or(p.dialog().getByText("@2")).first().waitFor();
    await p.shot("policies-compared");
    await p.dialog().getByTestId("end-test").click();
    const end = p.dialog().filter({ hasText: "End the comparison?" });
    await p.choose(end, "Winner", "b (flow@2)");
    await end.getByTestId("end-test-confirm").click();
    const issued = (version) =>
      page
        .getByTestId("issued-version")
        .filter({ hasText: new RegExp(`^${version}$`) })
        .waitFor();
    await issued(2);
    const second = await decidedBy("safer");
    assert.equal(second.by, "flow@2");
    assert.deepEqual(second.scored, ["highest-security"]);
    assert.notEqual(second.at, "guian", "of grade 2, which the filter keeps out");
    await page.getByTestId("rollback").click();
    await p.dialog().getByLabel("Reason").fill("too dear");
    await p.dialog().getByTestId("ask-confirm").click();
    await issued(1);
    const back = await decidedBy("back");
    assert.equal(back.by, "flow@1");
    await page.goto(`${p.url}/jobs/${back.job}?tab=placement`);
    await page.getByTestId("decided-by").getByText("flow@1", { exact: true }).waitFor();
    await p.shot("policies-rolled-back");
    await still("after rolling back");
  });

  test("history tells it all, and the load never noticed", async () => {
    const history = await ok("policy", "history", "flow");
    for (const action of ["created", "issued", "rolled back"])
      assert.match(history, new RegExp(action.replace(" ", ".")));
    await load.stop();
    for (const id of load.ids) {
      const state = await p.until(async () => {
        const found = (await p.rest("GET", `/v1/jobs/${id}`)).state;
        return /SUCCEEDED|FAILED|STOPPED/.test(found) && found;
      }, `${id} ends`);
      assert.equal(state, "STATE_SUCCEEDED", id);
    }
    assert.equal(readFileSync(join(p.dir, "data/admin.key"), "utf8").trim(), p.key);
    console.log(`${load.ids.length} jobs of the load succeeded`);
  });

  test("nothing went wrong in the browser", () => assert.deepEqual(p.seen.problems, []));
});
