"""The kustomizations build, and what their objects name exists."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import deployment

BASE = deployment.DEPLOY / "kubernetes" / "base"


def kustomize(folder):
  """The objects that `kubectl kustomize` makes of a folder."""
  result = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False, timeout=120)
  if result.returncode != 0:
    raise AssertionError(result.stderr)
  return list(yaml.safe_load_all(result.stdout))


def kubectl_version():
  """(major, minor) of kubectl; (0, 0) where there is none."""
  if not shutil.which("kubectl"):
    return (0, 0)
  result = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=False)
  match = re.search(r'"gitVersion": "v(\d+)\.(\d+)', result.stdout)
  return tuple(int(part) for part in match.groups()) if match else (0, 0)


def mebibytes(quantity):
  """Of a quantity in Mi, Gi or Ti."""
  return int(quantity[:-2]) * {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}[quantity[-2:]]


class KustomizeTest(unittest.TestCase):

  @unittest.skipUnless(kubectl_version() > (0, 0), "no kubectl")
  def test_base_builds(self):
    objects = kustomize(BASE)
    kinds = sorted(o["kind"] for o in objects)
    self.assertEqual(kinds, ["ConfigMap", "DaemonSet", "Deployment", "Namespace", "NetworkPolicy", "NetworkPolicy",
                             "PersistentVolumeClaim", "PersistentVolumeClaim", "Service", "Service", "ServiceAccount"])
    for o in objects:
      if o["kind"] != "Namespace":
        self.assertEqual(o["metadata"]["namespace"], "stagewright")

  @unittest.skipUnless(kubectl_version() >= (1, 21), "kubectl is older than the overlay's form")
  def test_cuda_overlay_replaces_the_worker_only(self):
    base = {(o["kind"], o["metadata"]["name"]): o for o in kustomize(BASE)}
    cuda = {(o["kind"], o["metadata"]["name"]): o for o in kustomize(deployment.DEPLOY / "kubernetes" / "cuda")}
    self.assertEqual(base.keys(), cuda.keys())
    changed = {key for key in base if base[key] != cuda[key]}
    self.assertEqual(changed, {("DaemonSet", "stagewright-worker"), ("NetworkPolicy", "stagewright-worker")})
    pod = cuda["DaemonSet", "stagewright-worker"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    self.assertTrue(container["image"].startswith("stagewright-worker-cuda:"))
    self.assertEqual(container["command"], ["stagewright-worker-per-gpu"])
    self.assertEqual(pod["runtimeClassName"], "nvidia")
    # A pod has all GPUs of its node.
    self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], pod["nodeSelector"]["nvidia.com/gpu.count"])
    # A port is that of one GPU's worker, whose failure is no reason to end those of the others.
    self.assertFalse([field for field in container if field.endswith("Probe")])
    memory = next(v for v in pod["volumes"] if v["name"] == "shared-memory")
    self.assertEqual(memory["emptyDir"]["medium"], "Memory")
    self.assertIn({"name": "shared-memory", "mountPath": "/dev/shm"}, container["volumeMounts"])
    needed = mebibytes(container["resources"]["requests"]["memory"]) + mebibytes(memory["emptyDir"]["sizeLimit"])
    self.assertGreaterEqual(mebibytes(container["resources"]["limits"]["memory"]), needed)
    # Prometheus reaches the metrics of every GPU's process.
    first = int(deployment.parse_flags(container["args"])["--metrics-listen"].rpartition(":")[2])
    last = first + int(container["resources"]["limits"]["nvidia.com/gpu"]) - 1
    scraped = cuda["NetworkPolicy", "stagewright-worker"]["spec"]["ingress"][1]
    self.assertEqual(scraped["ports"], [{"port": first, "endPort": last, "protocol": "TCP"}])
    self.assertEqual(scraped["from"], base["NetworkPolicy", "stagewright-worker"]["spec"]["ingress"][1]["from"])

  def test_the_cuda_worker_has_the_base_workers_flags(self):
    """All but the devices, and threads and memory, which are those of processors."""
    base, cuda = ({f.partition("=")[0]: f for f in container["args"]} for container in (
        next(c for program, _, c in deployment.workloads() if program == "stagewright-worker"),
        next(d for _, d in deployment.documents("kubernetes/cuda") if d["kind"] == "DaemonSet")
        ["spec"]["template"]["spec"]["containers"][0]))
    of_processors = ("--devices", "--threads-per-device", "--memory-mib", "--memory-limit-mib")
    self.assertEqual(cuda, {flag: text for flag, text in base.items() if flag not in of_processors})


class FrontTest(unittest.TestCase):
  """The overlay with a proxy before the planner."""

  @unittest.skipUnless(kubectl_version() >= (1, 21), "kubectl is older than the overlay's form")
  def test_the_proxy_stands_before_the_planner(self):
    base = {(o["kind"], o["metadata"]["name"]): o for o in kustomize(BASE)}
    front = {(o["kind"], re.sub(r"-[a-z0-9]{10}$", "", o["metadata"]["name"])): o
             for o in kustomize(deployment.DEPLOY / "kubernetes" / "front")}
    base = {(kind, re.sub(r"-[a-z0-9]{10}$", "", name)): o for (kind, name), o in base.items()}
    name = "stagewright-front"
    self.assertEqual(set(front) - set(base), {(kind, name) for kind in (
        "ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")})
    # Nodes that are emptied leave one of the two.
    proxy, budget = front["Deployment", name]["spec"], front["PodDisruptionBudget", name]["spec"]
    self.assertEqual(budget["selector"], proxy["selector"])
    self.assertLess(budget["maxUnavailable"], proxy["replicas"])
    changed = {key for key in base if base[key] != front[key]}
    self.assertEqual(changed, {("Deployment", "stagewright-planner"), ("NetworkPolicy", "stagewright-planner")})
    # Clients reach the proxy only.
    planner = front["NetworkPolicy", "stagewright-planner"]["spec"]["ingress"][0]
    self.assertEqual([rule["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for rule in planner["from"]],
                     ["stagewright-worker", name])
    self.assertEqual(planner["ports"], [{"port": "grpc"}])
    self.assertIn("--token-file=/etc/stagewright/tokens/tokens",
                  front["Deployment", "stagewright-planner"]["spec"]["template"]["spec"]["containers"][0]["args"])

  def test_the_configuration_has_what_it_asks_the_environment_for(self):
    folder = deployment.DEPLOY / "kubernetes" / "front"
    asked = set(re.findall(r'"\$(\w+)"', (folder / "haproxy.cfg").read_text()))
    pod = next(d for _, d in deployment.documents("kubernetes/front") if d["kind"] == "Deployment")
    container = pod["spec"]["template"]["spec"]["containers"][0]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    self.assertEqual(asked, set(environment))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    self.assertEqual(environment["FRONT_LISTEN"], f"0.0.0.0:{ports['grpc']}")
    self.assertEqual(environment["FRONT_HEALTH"], f"0.0.0.0:{ports['health']}")
    self.assertEqual(environment["PLANNER_ADDRESS"], "stagewright-planner:7070")
    volumes = {volume["name"] for volume in pod["spec"]["template"]["spec"]["volumes"]}
    self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)


class ArtifactsTest(unittest.TestCase):
  """The component with which workers read weights from a bucket."""

  def objects(self, overlay):
    """Those of an overlay, by kind and name: as it is, and as the component's comment has it."""
    folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    found = []
    component = deployment.DEPLOY.resolve() / "kubernetes" / "artifacts"
    told = re.search(r"^#   resources: .*\n(?:#   .*\n)*", (component / "kustomization.yaml").read_text(), re.MULTILINE).group()
    own = yaml.safe_load(told.replace("#   ", ""))
    for kustomization in ({"resources": own["resources"]}, own):
      kustomization = dict(kustomization, resources=[f"../{overlay}"])
      for names in (key for key in ("resources", "components") if key in kustomization):
        kustomization[names] = [os.path.relpath(component / name, folder.resolve()) for name in kustomization[names]]
      (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
      found.append({(o["kind"], re.sub(r"-[a-z0-9]{10}$", "", o["metadata"]["name"])): o for o in kustomize(folder)})
    return found

  @unittest.skipUnless(kubectl_version() >= (1, 21), "kubectl is older than the component's form")
  def test_workers_reach_a_bucket_and_keep_what_they_read(self):
    for overlay in ("base", "cuda", "front"):
      with self.subTest(overlay=overlay):
        before, after = self.objects(overlay)
        self.assertEqual(set(after), set(before))
        worker, policy = ("DaemonSet", "stagewright-worker"), ("NetworkPolicy", "stagewright-worker")
        planner, settings = ("Deployment", "stagewright-planner"), ("ConfigMap", "stagewright")
        # The planner has another name of the settings only.
        self.assertEqual({key for key in before if before[key] != after[key]}, {worker, policy, planner, settings})
        pod = after[worker]["spec"]["template"]["spec"]
        container, old = pod["containers"][0], before[worker]["spec"]["template"]["spec"]["containers"][0]
        folder = "/var/cache/stagewright"
        self.assertEqual(container["args"], [*old["args"], f"--artifact-cache={folder}"])
        self.assertIn("--artifact-cache ", deployment.help_text("stagewright-worker") or "--artifact-cache ")
        # Who asks is of a Secret, all else of the settings.
        data = after[settings]["data"]
        self.assertEqual(data, before[settings]["data"] | {
            "STAGEWRIGHT_WORKER_ARTIFACTS": "s3://my-bucket/stagewright", "AWS_REGION": "eu-west-1"})
        self.assertEqual(container["envFrom"], [
            {"configMapRef": {"name": after[settings]["metadata"]["name"]}}, {"secretRef": {"name": "stagewright-artifacts"}}])
        # The container's own files are read-only.
        mount = next(m for m in container["volumeMounts"] if m["mountPath"] == folder)
        self.assertNotIn("readOnly", mount)
        self.assertIn({"name": mount["name"], "emptyDir": {}}, pod["volumes"])
        egress = after[policy]["spec"]["egress"]
        self.assertEqual(egress[:-1], before[policy]["spec"]["egress"])
        self.assertEqual(egress[-1]["ports"], [{"port": 443, "protocol": "TCP"}])


class ReferencesTest(unittest.TestCase):

  def setUp(self):
    self.objects = [d for _, d in deployment.documents("kubernetes/base")]
    self.kustomization = next(o for o in self.objects if o["kind"] == "Kustomization")

  def named(self, kind):
    return {o["metadata"]["name"]: o for o in self.objects if o["kind"] == kind}

  def test_kustomization_lists_every_file(self):
    files = {p.name for p in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    self.assertEqual(set(self.kustomization["resources"]), files)

  def test_volumes_and_claims(self):
    claims = self.named("PersistentVolumeClaim")
    for _, document, container in deployment.workloads():
      pod = document["spec"]["template"]["spec"]
      volumes = {v["name"]: v for v in pod["volumes"]}
      self.assertEqual({m["name"] for m in container["volumeMounts"]}, set(volumes))
      for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
          self.assertIn(volume["persistentVolumeClaim"]["claimName"], claims)

  def test_workers_alone_see_the_files_of_jobs(self):
    mounts = {program: [m["mountPath"] for m in container["volumeMounts"]] for program, _, container in deployment.workloads()}
    self.assertIn("/data", mounts["stagewright-worker"])
    self.assertNotIn("/data", mounts["stagewright-planner"])

  def test_selectors_and_target_ports(self):
    pods = [(d["spec"]["template"], c) for _, d, c in deployment.workloads()]
    for name, service in self.named("Service").items():
      with self.subTest(service=name):
        chosen = [c for template, c in pods
                  if service["spec"]["selector"].items() <= template["metadata"]["labels"].items()]
        self.assertEqual(len(chosen), 1)
        ports = {p["name"]: p["containerPort"] for p in chosen[0]["ports"]}
        for port in service["spec"]["ports"]:
          self.assertEqual(ports[port["targetPort"]], port["port"])
    for _, document, _ in deployment.workloads():
      labels = document["spec"]["template"]["metadata"]["labels"]
      self.assertLessEqual(document["spec"]["selector"]["matchLabels"].items(), labels.items())

  def test_variables_in_arguments_are_defined(self):
    generated = {literal.split("=")[0] for g in self.kustomization["configMapGenerator"] for literal in g["literals"]}
    maps = {g["name"] for g in self.kustomization["configMapGenerator"]}
    used = set()
    for _, _, container in deployment.workloads():
      self.assertLessEqual({e["configMapRef"]["name"] for e in container["envFrom"]}, maps)
      known = generated | {e["name"] for e in container.get("env", [])}
      names = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
      self.assertLessEqual(names, known)
      used |= names
    self.assertLessEqual(generated, used, "settings that no program reads")

  def test_ports_are_those_the_program_listens_on(self):
    for program, _, container in deployment.workloads():
      flags = deployment.parse_flags(container["args"])
      listening = {int(v.rsplit(":", 1)[1]) for k, v in flags.items() if k.endswith("listen")}
      self.assertEqual({p["containerPort"] for p in container["ports"]}, listening, program)
      names = {p["name"] for p in container["ports"]} | listening
      for probe in ("startupProbe", "livenessProbe"):
        self.assertIn(container[probe]["tcpSocket"]["port"], names)

  def test_probes_ask_for_no_answer_that_others_can_hold_up(self):
    """A few slow readers of /metrics keep it from answering, and the kubelet has no certificate for gRPC."""
    for program, port in (("stagewright-planner", "grpc"), ("stagewright-worker", "metrics")):
      container = next(c for p, _, c in deployment.workloads() if p == program)
      probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
      self.assertLessEqual({"startupProbe", "livenessProbe"}, set(probes), program)
      for name, probe in probes.items():
        self.assertEqual(probe["tcpSocket"], {"port": port}, f"{program} {name}")

  def test_planner_and_workers_speak_tls_with_files_of_a_secret(self):
    for program, document, container in deployment.workloads():
      flags = deployment.parse_flags(container["args"])
      self.assertNotIn("--insecure", flags, program)
      volumes = {v["name"]: v for v in document["spec"]["template"]["spec"]["volumes"]}
      mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
      for flag, file in [("--tls-cert", "tls.crt"), ("--tls-key", "tls.key"), ("--tls-ca", "ca.crt")]:
        folder, _, name = flags[flag].rpartition("/")
        self.assertEqual(name, file, program)
        self.assertTrue(mounts[folder]["readOnly"])
        self.assertEqual(volumes[mounts[folder]["name"]]["secret"]["secretName"], f"{program}-tls")

  def test_workers_keep_jobs_within_the_shared_volume(self):
    container = next(c for program, _, c in deployment.workloads() if program == "stagewright-worker")
    flags = deployment.parse_flags(container["args"])
    self.assertEqual((flags["--data-root"], flags["--output-root"]), ("/data", "/data"))

  def test_network_policies_fence_planner_and_workers(self):
    policies = self.named("NetworkPolicy")
    labels = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"] for _, d, _ in deployment.workloads()}
    self.assertEqual(set(policies), set(labels))
    ports = {c["name"]: {p["name"] for p in c["ports"]} for _, _, c in deployment.workloads()}
    for name, policy in policies.items():
      selector = policy["spec"]["podSelector"]["matchLabels"]
      self.assertTrue(selector)
      self.assertLessEqual(selector.items(), labels[name].items())
      for rule in policy["spec"]["ingress"]:
        self.assertTrue(rule["from"], "open to everybody")
        for peer in rule["from"]:
          self.assertTrue(peer["podSelector"]["matchLabels"], "open to every pod")
        for port in rule.get("ports", []):
          self.assertIn(port["port"], ports[name.removeprefix("stagewright-")])
    worker = policies["stagewright-worker"]["spec"]
    self.assertIn("Egress", worker["policyTypes"])
    from_workers = worker["ingress"][0]
    self.assertEqual(from_workers["from"][0]["podSelector"]["matchLabels"],
                     {"app.kubernetes.io/name": "stagewright-worker"})
    self.assertNotIn("ports", from_workers, "transports choose their ports")

  def test_memory_has_a_limit_that_jobs_stay_below(self):
    """A worker offers what the machine has unless it is told otherwise, and its container ends at the limit."""
    settings = dict(literal.split("=") for g in self.kustomization["configMapGenerator"] for literal in g["literals"])
    for program, document, container in deployment.workloads():
      limit = mebibytes(container["resources"]["limits"]["memory"])
      self.assertGreaterEqual(limit, mebibytes(container["resources"]["requests"]["memory"]))
      if program == "stagewright-worker":
        devices = int(settings["WORKER_DEVICES"].removeprefix("cpu:"))
        offered, most = (devices * int(settings[name]) for name in ("DEVICE_MEMORY_MIB", "DEVICE_MEMORY_LIMIT_MIB"))
        shared = next(v for v in document["spec"]["template"]["spec"]["volumes"] if v["name"] == "shared-memory")
        self.assertLess(offered, most)
        copied = offered  # Parameters and state, from which a checkpoint is written: less than a plan takes.
        self.assertLess(most + copied + mebibytes(shared["emptyDir"]["sizeLimit"]), limit)

  def test_nothing_runs_as_root(self):
    for _, document, container in deployment.workloads():
      pod = document["spec"]["template"]["spec"]
      self.assertTrue(pod["securityContext"]["runAsNonRoot"])
      self.assertGreater(pod["securityContext"]["runAsUser"], 0)
      self.assertEqual(container["securityContext"],
                       {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]}})
      self.assertIn(pod["serviceAccountName"], self.named("ServiceAccount"))

  def test_images_are_built_by_a_dockerfile(self):
    built = set()
    for path in deployment.dockerfiles():
      built |= set(re.findall(r"docker build .* -t (\S+)", path.read_text()))
    for program, _, _ in deployment.workloads():
      self.assertIn(program, built)
    for _, document in deployment.documents("kubernetes/cuda"):
      for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
        self.assertIn(container["image"].split(":")[0], built)


if __name__ == "__main__":
  unittest.main()
