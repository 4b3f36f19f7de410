"""A client of the director's API, with nothing beyond Python's own library.

Generated from the API's description (docs/reference/openapi.yaml) by go test ./client/python -update. Do not edit it.

    client = Client("https://director.example.org", token="...", ca_file="director-ca.crt")
    client.apply(open("cluster.yaml").read())
    plan = client.make_plan("demo", {})
    client.start_plan(plan["id"], {"hash": plan["hash"]})
    client.wait_for_plan(plan["id"])
"""

# Copyright: the director's authors
# Licensed under the Apache License 2.0: https://www.apache.org/licenses/LICENSE-2.0
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, TypedDict

# What a person ends, or no one: a plan in one of these moves no further by itself.
STILL = ("planned", "approved", "done", "undone", "discarded", "failed", "cancelled", "parked", "paused")

# How much of a file is sent at once.
PIECE = 8 << 20


def file_sha256(path: str) -> str:
    """The SHA-256 of a file, which is the id of its upload."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


class DirectorError(Exception):
    """What the director answered instead of doing it.

    kind is the class of the problem, such as not_found or conflict, and what programs should look at. hint says what to
    do next. errors names each place of the input that is wrong.
    """

    def __init__(
        self, kind: str, detail: str, status: int = 0, hint: str = "", errors: list[ProblemField] | None = None
    ) -> None:
        self.kind = kind
        self.detail = detail
        self.status = status
        self.hint = hint
        self.errors = errors or []
        super().__init__(detail)

    def __str__(self) -> str:
        parts = [self.detail]
        parts += [f"{e['field']}: {e['message']}" for e in self.errors]
        if self.hint:
            parts.append(self.hint)
        return "; ".join(parts)


class Unreachable(DirectorError):
    """The director did not answer. Whether it has done what was asked is not known."""

    def __init__(self, detail: str) -> None:
        super().__init__("unavailable", detail)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the token is for one server."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def _quote(value: str) -> str:
    return urllib.parse.quote(str(value), safe="")


def _query(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(v) for v in value)
    return str(value)


class _APIToken(TypedDict):
    created_at: str
    expires_at: str
    id: str
    name: str
    scope: str


class APIToken(_APIToken, total=False):
    address: str
    used_at: str


class APITokens(TypedDict):
    items: list[APIToken]


class AddressCheck(TypedDict):
    addresses: int
    network: str
    ways: list[str]


class Amounts(TypedDict):
    cpus: int
    machines: int
    memory_bytes: int


_AnsweredOdd = TypedDict("_AnsweredOdd", {
    "continue": "str",
}, total=False)


class Answered(_AnsweredOdd, total=False):
    pass


class _Appliance(TypedDict):
    running: ApplianceRoot


class Appliance(_Appliance, total=False):
    change: ApplianceChange
    kept: ApplianceRoot
    packages: AppliancePackages


class _ApplianceChange(TypedDict):
    stage: str


_ApplianceChangeOdd = TypedDict("_ApplianceChangeOdd", {
    "from": "ApplianceRoot",
}, total=False)


class ApplianceChange(_ApplianceChange, _ApplianceChangeOdd, total=False):
    began_at: str
    by: str
    done: int
    ended_at: str
    hint: str
    reason: str
    restores: bool
    task: str
    to: ApplianceRoot
    total: int
    verb: str


class ApplianceFix(TypedDict):
    fixed: str
    installed: str
    package: str


class AppliancePackages(TypedDict, total=False):
    list: str
    list_outdated: bool
    missing: list[ApplianceFix]
    of: str


class ApplianceRollback(TypedDict, total=False):
    drain: int
    lose_changes: bool
    within: int


class ApplianceRoot(TypedDict):
    built_at: str
    schema: str
    slot: str
    version: str


class _ApplianceUpgrade(TypedDict):
    upload: str


class ApplianceUpgrade(_ApplianceUpgrade, total=False):
    drain: int
    within: int


class Applied(TypedDict):
    changes: list[Change]
    dry_run: bool


class Asking(TypedDict):
    address: str
    expires_at: str
    host: str
    id: str
    kind: str


class _Audit(TypedDict):
    at: str
    findings: list[Finding]
    providers: list[Compared]


class Audit(_Audit, total=False):
    busy: list[str]
    disks: list[Disk]


class AuditCheckpoint(TypedDict):
    at: str
    director: str
    hash: str
    seq: int
    signature: str


class _AuditEntry(TypedDict):
    action: str
    actor: str
    at: str
    id: int
    object: str


class AuditEntry(_AuditEntry, total=False):
    count: int
    diff: str
    hash: str
    outcome: str
    problem: str
    request: str
    seq: int
    source: str


class AuditKey(TypedDict):
    key: str


class AuditSigned(TypedDict):
    checkpoint: AuditCheckpoint


class _AuditTrail(TypedDict):
    items: list[AuditEntry]


_AuditTrailOdd = TypedDict("_AuditTrailOdd", {
    "continue": "str",
}, total=False)


class AuditTrail(_AuditTrail, _AuditTrailOdd, total=False):
    pass


class _AuditVerification(TypedDict):
    before: int
    entries: int
    first: int
    good: bool
    last: int
    signed: int


class AuditVerification(_AuditVerification, total=False):
    bad: int
    why: str


class Authorities(TypedDict):
    items: list[Authority]


class _Authority(TypedDict):
    name: str
    type: str
    waiting: bool


class Authority(_Authority, total=False):
    ends: str
    hint: str
    problem: str
    subject: str


class AuthorityFollower(TypedDict):
    follows: bool
    name: str


class AuthorityImport(TypedDict):
    certificate: str


class AuthorityRequest(TypedDict):
    request: str


class AuthorityRequestQuery(TypedDict, total=False):
    new: bool


class _Backup(TypedDict):
    archive: str
    archive_bytes: int
    archive_sha256: str
    cluster: str
    cluster_uid: str
    encryption_keys: list[str]
    etcd: str
    id: str
    keys: int
    kubernetes: str
    made_at: str
    members: list[BackupMember]
    plan: str
    recipients: list[str]
    revision: int
    sha256: str
    size_bytes: int
    target: str


class Backup(_Backup, total=False):
    problem: str
    reason: str
    verified_at: str


class _BackupAge(TypedDict):
    cluster: str
    late: bool
    targets: list[str]


class BackupAge(_BackupAge, total=False):
    drills: Drills
    newest_at: str


class _BackupExtract(TypedDict):
    namespace: str
    password: str


class BackupExtract(_BackupExtract, total=False):
    kind: str
    name: str


class BackupMember(TypedDict):
    address: str
    name: str


class BackupObjects(TypedDict):
    backup: str
    cluster: str
    made_at: str
    objects: list[dict[str, Any]]


class BackupRefused(TypedDict):
    file: str
    why: str


class Backups(TypedDict):
    clusters: list[BackupAge]
    items: list[Backup]


class BackupsReread(TypedDict):
    added: list[str]
    found: int
    missing: list[str]
    refused: list[BackupRefused]


class _BreakGlass(TypedDict):
    password: str


class BreakGlass(_BreakGlass, total=False):
    ttl_seconds: int


class _Campaign(TypedDict):
    allowed: int
    at_once: int
    canary: int
    clusters: list[CampaignCluster]
    counts: dict[str, int]
    created_at: str
    created_by: str
    failed: int
    id: str
    may_fail: str
    name: str
    pause: str
    selector: CampaignSelector
    status: str
    target: CampaignTarget
    wave: int
    wave_size: str
    waves: list[CampaignWave]


class Campaign(_Campaign, total=False):
    ended_at: str
    ended_by: str
    paused_at: str
    paused_by: str
    reason: str
    until: str
    window: CampaignWindow


class CampaignAgree(TypedDict):
    hash: str
    wave: int


class _CampaignCluster(TypedDict):
    name: str
    state: str
    wave: int


class CampaignCluster(_CampaignCluster, total=False):
    agreed_at: str
    agreed_by: str
    difference: str
    finished_at: str
    hash: str
    hint: str
    message: str
    path: list[str]
    plan: str
    plan_status: str
    reason: str
    skipped_by: str
    started_at: str
    summary: str
    tolerated: bool


class _CampaignForeseen(TypedDict):
    name: str
    wave: int


class CampaignForeseen(_CampaignForeseen, total=False):
    busy: str
    look: CampaignLook
    project: str
    version: str


class _CampaignLook(TypedDict):
    problems: list[ProblemField]
    steps: int


class CampaignLook(_CampaignLook, total=False):
    operation: str
    path: list[str]
    summary: str


class _CampaignNew(TypedDict):
    name: str
    selector: CampaignSelector
    target: CampaignTarget


class CampaignNew(_CampaignNew, total=False):
    at_once: int
    canary: int
    failures: str
    pause: str
    wave: str
    window: CampaignWindow


class CampaignPreview(TypedDict):
    clusters: list[CampaignForeseen]
    problems: list[ProblemField]
    waves: list[int]


class _CampaignPreviewRequest(TypedDict):
    campaign: CampaignNew


class CampaignPreviewRequest(_CampaignPreviewRequest, total=False):
    look: list[str]


class CampaignReason(TypedDict, total=False):
    reason: str


class CampaignSelector(TypedDict, total=False):
    clusters: list[str]
    labels: list[str]
    statuses: list[str]
    versions: list[str]


class CampaignSkip(TypedDict):
    cluster: str
    reason: str


class CampaignTarget(TypedDict, total=False):
    image: str
    operation: str
    patch: Any
    release: str


class _CampaignWave(TypedDict):
    clusters: int
    counts: dict[str, int]
    current: bool
    number: int
    over: bool


class CampaignWave(_CampaignWave, total=False):
    hash: str


class _CampaignWindow(TypedDict):
    cron: str
    for_seconds: float


class CampaignWindow(_CampaignWindow, total=False):
    time_zone: str


class Campaigns(TypedDict):
    items: list[Campaign]


class Capacities(TypedDict):
    items: list[Capacity]


class _Capacity(TypedDict):
    fits: list[Fit]
    hosts: list[HostCapacity]
    provider: str
    quota: Amounts
    used: Amounts


class Capacity(_Capacity, total=False):
    hint: str
    unseen: str


class _Certificate(TypedDict):
    ends_at: str
    name: str
    seen_at: str


class Certificate(_Certificate, total=False):
    unchecked: bool


class _CertificateFinding(TypedDict):
    begins_at: str
    ends_at: str
    fingerprint: str
    issuer: str
    name: str
    next: str
    place: str
    seen_at: str
    serial: str
    source: str
    subject: str
    what: str


class CertificateFinding(_CertificateFinding, total=False):
    authority: bool
    cluster: str
    node: str
    problem: str
    stale: bool


class CertificateVerification(TypedDict):
    findings: list[CertificateFinding]
    looked: int


class _Certificates(TypedDict):
    before: str
    ended: int
    ending: int


class Certificates(_Certificates, total=False):
    next_at: str


class _Change(TypedDict):
    action: str
    kind: str
    name: str


class Change(_Change, total=False):
    diff: str


class _Check(TypedDict):
    name: str
    ok: bool


class Check(_Check, total=False):
    reason: str


class _Checked(TypedDict):
    cluster: str
    ok: bool
    problems: list[ProblemField]


class Checked(_Checked, total=False):
    addresses: list[AddressCheck]
    operation: str
    steps: int
    summary: str
    warnings: list[str]


class _Cluster(TypedDict):
    created_at: str
    generation: int
    machines: list[Machine]
    name: str
    nodes: int
    status: str


class Cluster(_Cluster, total=False):
    endpoint: str
    newer: NewerRelease
    plan: str
    plan_status: str
    project: str
    release: str
    version: str


class _ClusterHealth(TypedDict):
    conditions: dict[str, int]
    etcd_members: list[str]
    nodes: int
    state: str
    versions: dict[str, int]


class ClusterHealth(_ClusterHealth, total=False):
    cause: str
    certificate: NextCertificate
    no_members: list[str]
    seen_at: str


class ClusterToken(TypedDict):
    expires_at: str
    token: str


class _Clusters(TypedDict):
    items: list[Cluster]


_ClustersOdd = TypedDict("_ClustersOdd", {
    "continue": "str",
}, total=False)


class Clusters(_Clusters, _ClustersOdd, total=False):
    facets: Facets
    total: int


class _Compared(TypedDict):
    name: str
    vms: int


class Compared(_Compared, total=False):
    hint: str
    unseen: str


class ConsoleText(TypedDict):
    at: str
    text: str


class Consul(TypedDict):
    addresses: list[str]
    datacenter: str
    domain: str
    name: str
    state: ConsulState


class _ConsulGap(TypedDict):
    cidr: str
    cluster: str
    hint: str
    nodes: list[str]
    problem: str
    services: list[str]


_ConsulGapOdd = TypedDict("_ConsulGapOdd", {
    "from": "str",
}, total=False)


class ConsulGap(_ConsulGap, _ConsulGapOdd, total=False):
    network: str


class _ConsulGaps(TypedDict):
    items: list[ConsulGap]


class ConsulGaps(_ConsulGaps, total=False):
    more: int


class ConsulRemovals(TypedDict):
    count: int
    id: str
    sample: list[str]
    total: int


class _ConsulService(TypedDict):
    address: str
    id: str
    node: str
    passing: bool
    port: int
    service: str
    tags: list[str]
    writer: str


class ConsulService(_ConsulService, total=False):
    cluster: str
    drift: str
    output: str


class ConsulServices(TypedDict):
    items: list[ConsulService]


class _ConsulState(TypedDict):
    failing: int
    removed: int
    wanted: int
    written: int


class ConsulState(_ConsulState, total=False):
    at: str
    held: ConsulRemovals
    hint: str
    problem: str
    success_at: str


class ConsulSync(TypedDict, total=False):
    confirm: str


class Consuls(TypedDict):
    items: list[Consul]


class Cookie(TypedDict):
    Domain: str
    Expires: str
    HttpOnly: bool
    MaxAge: int
    Name: str
    Partitioned: bool
    Path: str
    Quoted: bool
    Raw: str
    RawExpires: str
    SameSite: int
    Secure: bool
    Unparsed: list[str]
    Value: str


class CreatedToken(TypedDict):
    record: APIToken
    token: str


class _Credentials(TypedDict):
    created_at: str
    name: str
    revision: int
    updated_at: str
    updated_by: str
    user: str


class Credentials(_Credentials, total=False):
    providers: list[str]


class CredentialsChange(TypedDict):
    password: str
    user: str


class CredentialsList(TypedDict):
    items: list[Credentials]


class _DirectorAuthority(TypedDict):
    authorities: list[TrustedAuthority]
    behind: list[NodeBehind]
    certificate: str
    stage: str
    trusted: str


class DirectorAuthority(_DirectorAuthority, total=False):
    directors: list[AuthorityFollower]


class _DirectorAuthorityChange(TypedDict):
    stage: str


class DirectorAuthorityChange(_DirectorAuthorityChange, total=False):
    force: bool


class _DirectorPlanRequest(TypedDict):
    operation: str


class DirectorPlanRequest(_DirectorPlanRequest, total=False):
    delete_data: bool
    unready: bool


class _DirectorVM(TypedDict):
    created_at: str
    generation: int
    name: str
    provider: str
    status: str


class DirectorVM(_DirectorVM, total=False):
    address: str
    certificate: str
    endpoint: str
    host: str
    outdated: bool
    plan: str
    plan_status: str


class DirectorVMs(TypedDict):
    items: list[DirectorVM]


class _DiscoverRequest(TypedDict):
    document: str


class DiscoverRequest(_DiscoverRequest, total=False):
    password: str
    user: str


class _Discovered(TypedDict):
    kind: str
    name: str


_DiscoveredOdd = TypedDict("_DiscoveredOdd", {
    "in": "str",
}, total=False)


class Discovered(_Discovered, _DiscoveredOdd, total=False):
    about: str
    cpus: int
    free_bytes: int
    memory_bytes: int
    memory_free_bytes: int
    problem: str
    size_bytes: int
    vms: int


class DiscoveredLeft(TypedDict):
    count: int
    kind: str


class _DiscoveredUnseen(TypedDict):
    host: str
    problem: str


class DiscoveredUnseen(_DiscoveredUnseen, total=False):
    hint: str


class _Discovery(TypedDict):
    items: list[Discovered]
    provider: str
    version: str


class Discovery(_Discovery, total=False):
    left: list[DiscoveredLeft]
    unseen: list[DiscoveredUnseen]


class _Disk(TypedDict):
    id: str
    name: str
    provider: str
    state: str


class Disk(_Disk, total=False):
    cluster: str
    copy_of: str
    holder: str
    host: str
    kept_at: str
    node: str
    plan: str
    pool: str
    size_bytes: int
    vm: str


class Disks(TypedDict):
    items: list[Disk]
    providers: list[Compared]


class _Document(TypedDict):
    created_at: str
    document: Any
    generation: int
    kind: str
    name: str
    updated_at: str
    updated_by: str


class Document(_Document, total=False):
    etag: str
    uid: str


class _Documents(TypedDict):
    items: list[Document]


_DocumentsOdd = TypedDict("_DocumentsOdd", {
    "continue": "str",
}, total=False)


class Documents(_Documents, _DocumentsOdd, total=False):
    pass


class Drain(TypedDict, total=False):
    delete_emptydir: bool
    timeout_seconds: float
    unmanaged: bool


class _Drill(TypedDict):
    backup: str
    began_at: str
    keys: int
    ok: bool
    plan: str
    seconds: float


class Drill(_Drill, total=False):
    ended_at: str
    problem: str


class _Drills(TypedDict):
    late: bool
    network: str


class Drills(_Drills, total=False):
    last_at: str
    newest: Drill


class _Effect(TypedDict):
    name: str
    object: str
    verb: str


class Effect(_Effect, total=False):
    detail: str


class EffectGroup(TypedDict):
    names: list[str]
    object: str
    total: int
    verb: str


class EffectGroups(TypedDict):
    items: list[EffectGroup]


class End(TypedDict):
    status: str


class _Event(TypedDict):
    at: str
    kind: str
    plan: str
    seq: int


class Event(_Event, total=False):
    attempt: int
    by: str
    hint: str
    message: str
    not_before: str
    step: str


class EventGap(TypedDict):
    after: int
    through: int


class _Events(TypedDict):
    ended: bool
    items: list[Event]
    last: int
    status: str


class Events(_Events, total=False):
    gap: EventGap


class _Eviction(TypedDict):
    namespace: str
    pod: str


class Eviction(_Eviction, total=False):
    blocked: str
    owner: str
    why: str


class Evictions(TypedDict):
    items: list[Eviction]


class Facets(TypedDict):
    plan_status: dict[str, int]
    project: dict[str, int]
    release: dict[str, int]
    status: dict[str, int]
    version: dict[str, int]


class _Finding(TypedDict):
    kind: str
    name: str
    next: str
    problem: str
    provider: str


class Finding(_Finding, total=False):
    cluster: str
    host: str
    machine: str
    vm: str


class _Fit(TypedDict):
    by: str
    count: int
    cpus: int
    disk_bytes: int
    memory_bytes: int


class Fit(_Fit, total=False):
    pool: str


class _FleetNode(TypedDict):
    cluster: str
    condition: str
    name: str
    provider: str
    ready: bool
    role: str
    state: str


class FleetNode(_FleetNode, total=False):
    address: str
    certificates: list[Certificate]
    cordoned: bool
    etcd: bool
    hint: str
    host: str
    host_down: str
    host_lost: bool
    kept_by: str
    kubelet: str
    pool: str
    power: str
    problem: str
    reason: str
    repair: str
    seen_at: str
    unseen: str
    version: str
    wanted: str


class _FleetNodes(TypedDict):
    conditions: dict[str, int]
    items: list[FleetNode]
    total: int


_FleetNodesOdd = TypedDict("_FleetNodesOdd", {
    "continue": "str",
}, total=False)


class FleetNodes(_FleetNodes, _FleetNodesOdd, total=False):
    pass


class _Granted(TypedDict):
    role: str


class Granted(_Granted, total=False):
    cluster: str
    project: str


class _Holder(TypedDict):
    cluster: str
    plan: str
    since: str


class Holder(_Holder, total=False):
    by: str
    operation: str
    status: str


class Hook(TypedDict):
    gone: bool
    mode: str
    name: str
    phases: list[str]
    url: str


class _HookAnswer(TypedDict):
    decision: str


class HookAnswer(_HookAnswer, total=False):
    reason: str


class _HookDeliveries(TypedDict):
    items: list[HookDelivery]


_HookDeliveriesOdd = TypedDict("_HookDeliveriesOdd", {
    "continue": "str",
}, total=False)


class HookDeliveries(_HookDeliveries, _HookDeliveriesOdd, total=False):
    pass


class _HookDelivery(TypedDict):
    attempts: int
    created_at: str
    hook: str
    id: str
    phase: str
    state: str
    waits: bool


class HookDelivery(_HookDelivery, total=False):
    answered_at: str
    answered_by: str
    cluster: str
    deadline: str
    decision: str
    http_status: int
    next_at: str
    node: str
    plan: str
    problem: str
    reason: str
    received_at: str
    replayed: int
    step: str


class _HookKey(TypedDict):
    algorithm: str
    created_at: str
    id: str


class HookKey(_HookKey, total=False):
    ends_at: str
    public: str
    secret: str


class HookKeys(TypedDict):
    items: list[HookKey]


class HookPassword(TypedDict):
    password: str


class Hooks(TypedDict):
    items: list[Hook]


class _HostAfter(TypedDict):
    disk_left_bytes: int
    host: str
    memory_left_bytes: int


class HostAfter(_HostAfter, total=False):
    cpus_left: int


class _HostCapacity(TypedDict):
    cpus: int
    cpus_promised: int
    disk_bytes: int
    disk_left_bytes: int
    host: str
    memory_bytes: int
    memory_left_bytes: int
    memory_promised_bytes: int


class HostCapacity(_HostCapacity, total=False):
    cpus_left: int


class _Image(TypedDict):
    kubernetes: str
    sha256: str


class Image(_Image, total=False):
    clusters: list[str]
    file: ImageFile
    name: str
    old: int
    providers: list[str]
    refused: str
    signed_by: str
    source: str
    unsigned: str


class ImageConversion(TypedDict):
    compat: str


class _ImageFile(TypedDict):
    arch: str
    compat: str
    imported_at: str
    kubernetes: str
    origin_sha256: str
    origin_size: int
    sha256: str
    size: int
    told: bool
    virtual: int


class ImageFile(_ImageFile, total=False):
    imported_by: str
    origin_format: str
    origin_name: str


class _ImageImport(TypedDict):
    upload: str


class ImageImport(_ImageImport, total=False):
    checksum: str
    compat: str
    kubernetes: str
    signature: str
    unsigned: str


class _ImageJob(TypedDict):
    id: str
    stage: str


class ImageJob(_ImageJob, total=False):
    done: int
    file: ImageFile
    problem: Problem
    total: int


class _ImageLeft(TypedDict):
    sha256: str


class ImageLeft(_ImageLeft, total=False):
    kept: str
    name: str
    provider: str
    size: int


class Images(TypedDict):
    items: list[Image]


class ImagesPruned(TypedDict):
    dry_run: bool
    items: list[ImageLeft]


class Interface(TypedDict):
    address: str
    mac: str
    network: str
    role: str


class Inventory(TypedDict):
    files: dict[str, str]


class _InventoryExport(TypedDict):
    password: str


class InventoryExport(_InventoryExport, total=False):
    ttl_seconds: int


class _Key(TypedDict):
    name: str
    purpose: str
    state: str


class Key(_Key, total=False):
    cluster: str
    ends_at: str
    id: str
    made_at: str
    owner: str


class Keys(TypedDict):
    items: list[Key]


class KubeconfigRequest(TypedDict, total=False):
    ttl_seconds: int


class LogEnd(TypedDict):
    attempt: int
    total: int


class LogHit(TypedDict):
    line: int
    text: str


class _LogHits(TypedDict):
    attempt: int
    items: list[LogHit]
    total: int


class LogHits(_LogHits, total=False):
    next: int


class LogLine(TypedDict):
    line: int
    record: LogRecord


class LogLines(TypedDict):
    attempt: int
    growing: bool
    items: list[LogLine]
    next: int
    total: int


class LogRecord(TypedDict, total=False):
    action: str
    attempts: int
    changed: bool
    command: str
    count: int
    cut: list[str]
    diff: str
    host: str
    ignored: bool
    msg: str
    n: int
    path: str
    play: str
    playbook: str
    rc: int
    retries: int
    role: str
    seconds: float
    status: str
    stderr: str
    stdout: str
    task: str
    time: str
    type: str


class Login(TypedDict):
    password: str
    user: str


class LoginProvider(TypedDict):
    name: str
    title: str
    url: str


class LoginProviders(TypedDict):
    items: list[LoginProvider]


class _LoginSession(TypedDict):
    created_at: str
    current: bool
    expires_at: str
    id: str
    kind: str


class LoginSession(_LoginSession, total=False):
    address: str
    used_at: str


class LoginSessions(TypedDict):
    items: list[LoginSession]


class _Machine(TypedDict):
    name: str
    role: str
    state: str


class Machine(_Machine, total=False):
    address: str
    cpus: int
    host: str
    interfaces: list[Interface]
    memory_bytes: int
    pool: str
    vm_id: str


class _Matrix(TypedDict):
    groups: list[StepGroup]
    last_event: int
    rows: list[MatrixRow]
    status: str
    statuses: dict[str, int]
    total: int


_MatrixOdd = TypedDict("_MatrixOdd", {
    "continue": "str",
}, total=False)


class Matrix(_Matrix, _MatrixOdd, total=False):
    pass


class _MatrixCell(TypedDict):
    done: int
    group: int
    status: str
    step: str
    steps: int


class MatrixCell(_MatrixCell, total=False):
    finished_at: str
    started_at: str


class _MatrixRow(TypedDict):
    cells: list[MatrixCell]
    status: str


class MatrixRow(_MatrixRow, total=False):
    node: str


class Me(TypedDict):
    can: list[str]
    expires_at: str
    grants: list[Granted]
    kind: str
    must_change_password: bool
    role: str
    scope: str
    user: str


class ModelRef(TypedDict):
    generation: int
    kind: str
    name: str


class _NetworkAddress(TypedDict):
    address: str
    pool: bool
    use: str


class NetworkAddress(_NetworkAddress, total=False):
    cluster: str
    machine: str
    role: str
    state: str


class _NetworkAddresses(TypedDict):
    free: int
    items: list[NetworkAddress]
    pool: int
    total: int
    used: int


_NetworkAddressesOdd = TypedDict("_NetworkAddressesOdd", {
    "continue": "str",
}, total=False)


class NetworkAddresses(_NetworkAddresses, _NetworkAddressesOdd, total=False):
    pass


class _NewToken(TypedDict):
    name: str


class NewToken(_NewToken, total=False):
    days: int
    password: str
    scope: str


class _NewUser(TypedDict):
    name: str


class NewUser(_NewUser, total=False):
    role: str
    service: bool


class NewerRelease(TypedDict):
    release: str
    version: str


class NextCertificate(TypedDict):
    ends_at: str
    name: str
    node: str


class _Node(TypedDict):
    name: str
    ready: bool
    role: str
    state: str


class Node(_Node, total=False):
    address: str
    certificates: list[Certificate]
    cordoned: bool
    etcd: bool
    hint: str
    host: str
    host_down: str
    host_lost: bool
    kept_by: str
    kubelet: str
    pool: str
    power: str
    problem: str
    reason: str
    repair: str
    version: str
    wanted: str


class NodeBehind(TypedDict):
    cluster: str
    node: str
    why: str


class _Nodes(TypedDict):
    items: list[Node]


class Nodes(_Nodes, total=False):
    auto_repair: str
    plan: str
    unseen: str


class _Notification(TypedDict):
    about: list[str]
    gone: bool
    name: str
    to: list[str]


class Notification(_Notification, total=False):
    quiet_until: str


class _NotificationItem(TypedDict):
    about: str
    path: str
    text: str


class NotificationItem(_NotificationItem, total=False):
    cluster: str
    since: str


class _NotificationMessage(TypedDict):
    attempts: int
    created_at: str
    id: str
    items: list[NotificationItem]
    notification: str
    state: str
    test: bool


class NotificationMessage(_NotificationMessage, total=False):
    more: int
    next_at: str
    problem: str
    sent_at: str


class _NotificationMessages(TypedDict):
    items: list[NotificationMessage]


_NotificationMessagesOdd = TypedDict("_NotificationMessagesOdd", {
    "continue": "str",
}, total=False)


class NotificationMessages(_NotificationMessages, _NotificationMessagesOdd, total=False):
    pass


class Notifications(TypedDict):
    items: list[Notification]


class _OneTimePassword(TypedDict):
    user: User


class OneTimePassword(_OneTimePassword, total=False):
    expires_at: str
    password: str


class PasswordChange(TypedDict):
    current: str
    new: str


class _PhaseCluster(TypedDict):
    cluster: str
    nodes: list[PhaseNode]
    plans: list[PhasePlan]
    state: str


class PhaseCluster(_PhaseCluster, total=False):
    hint: str
    message: str


class _PhaseNode(TypedDict):
    name: str
    steps_done: int
    steps_total: int


class PhaseNode(_PhaseNode, total=False):
    status: str
    step: str


class _PhasePlan(TypedDict):
    id: str
    operation: str
    status: str
    steps_done: int
    steps_total: int


class PhasePlan(_PhasePlan, total=False):
    message: str


class _PhaseRequest(TypedDict):
    phase: str
    task_id: str


class PhaseRequest(_PhaseRequest, total=False):
    cluster: str
    director: str
    drain: Drain
    host: str
    host_keys: dict[str, str]
    install: bool
    node: str
    provider: str
    undrained: bool
    upgrade: ApplianceUpgrade


class _PhaseTask(TypedDict):
    by: str
    clusters: list[PhaseCluster]
    phase: str
    started_at: str
    state: str
    task_id: str


class PhaseTask(_PhaseTask, total=False):
    cluster: str
    director: str
    drain: Drain
    finished_at: str
    hint: str
    host: str
    host_keys: dict[str, str]
    install: bool
    message: str
    node: str
    progress: PhaseUpgrade
    provider: str
    undrained: bool
    upgrade: ApplianceUpgrade


class _PhaseUpgrade(TypedDict):
    host: str


_PhaseUpgradeOdd = TypedDict("_PhaseUpgradeOdd", {
    "from": "str",
}, total=False)


class PhaseUpgrade(_PhaseUpgrade, _PhaseUpgradeOdd, total=False):
    done: int
    stage: str
    to: str
    total: int


class _Plan(TypedDict):
    approvals: list[str]
    cluster: str
    created_at: str
    created_by: str
    estimate_seconds: float
    hash: str
    id: str
    last_event: int
    machines: list[PlanMachine]
    models: list[ModelRef]
    operation: str
    status: str
    steps: list[Step]
    steps_done: int
    steps_total: int
    summary: str
    warnings: list[str]


class Plan(_Plan, total=False):
    approved_by: str
    expires_at: str
    finished_at: str
    hint: str
    message: str
    playbooks: str
    started_at: str
    waits: list[Wait]
    windows: list[Window]


class PlanCancel(TypedDict, total=False):
    now: bool


class PlanComparison(TypedDict):
    approvals_gone: list[str]
    approvals_new: list[str]
    effects_gone: list[Effect]
    effects_new: list[Effect]
    older: str
    plan: str
    reasons: list[str]
    same: bool
    steps_gone: list[PlanStep]
    steps_new: list[PlanStep]


class _PlanDocument(TypedDict):
    generation: int
    kind: str
    name: str
    text: str


class PlanDocument(_PlanDocument, total=False):
    former: int
    former_text: str


class PlanDocuments(TypedDict):
    items: list[PlanDocument]


class _PlanDrain(TypedDict):
    node: str
    pods: list[Eviction]
    step: str


class PlanDrain(_PlanDrain, total=False):
    unseen: str


class PlanDrains(TypedDict):
    at: str
    items: list[PlanDrain]
    rest: int


class _PlanMachine(TypedDict):
    id: str
    name: str
    role: str


class PlanMachine(_PlanMachine, total=False):
    address: str
    host: str
    mac: str
    pool: str


class PlanPause(TypedDict, total=False):
    reason: str


class PlanRequest(TypedDict, total=False):
    adopt_disks: dict[str, str]
    certificates: RotateCertificates
    delete_data: bool
    drain: Drain
    host: str
    host_keys: dict[str, str]
    keep_vm: bool
    lost_host: str
    nodes: list[str]
    operation: str
    restore: RestoreBackup
    undrained: bool


class PlanRetry(TypedDict, total=False):
    step: str


class PlanSkip(TypedDict):
    reason: str
    step: str


class PlanStart(TypedDict):
    hash: str


class PlanStep(TypedDict):
    id: str
    title: str


class _PlanSummary(TypedDict):
    cluster: str
    created_at: str
    created_by: str
    estimate_seconds: float
    hash: str
    id: str
    operation: str
    status: str
    steps_done: int
    steps_total: int
    summary: str


class PlanSummary(_PlanSummary, total=False):
    finished_at: str
    hint: str
    message: str
    started_at: str


class _PlanWait(TypedDict):
    cluster: str
    mine: bool
    operation: str
    owner: str
    plan: str
    reason: str
    status: str
    summary: str


class PlanWait(_PlanWait, total=False):
    since: str
    step: str
    steps: int
    until: str
    who: str


class PlanWaits(TypedDict):
    items: list[PlanWait]
    total: int


class _Plans(TypedDict):
    items: list[PlanSummary]


_PlansOdd = TypedDict("_PlansOdd", {
    "continue": "str",
}, total=False)


class Plans(_Plans, _PlansOdd, total=False):
    pass


class Preview(TypedDict):
    changes: list[Change]
    ok: bool
    plans: list[PreviewPlan]
    problems: list[PreviewProblem]


class _PreviewPlan(TypedDict):
    approvals: list[str]
    cluster: str
    effects: list[Effect]
    effects_total: int
    estimate_seconds: float
    groups: list[StepGroup]
    machines: int
    ok: bool
    problems: list[PreviewProblem]
    steps: int
    warnings: list[str]


class PreviewPlan(_PreviewPlan, total=False):
    addresses: list[AddressCheck]
    hosts_after: list[HostAfter]
    operation: str
    summary: str


class _PreviewProblem(TypedDict):
    field: str
    message: str


class PreviewProblem(_PreviewProblem, total=False):
    column: int
    document: str
    hint: str
    line: int
    pointer: str


class _Probe(TypedDict):
    ok: bool
    what: str


class Probe(_Probe, total=False):
    found: str
    hint: str
    host: str
    problem: str


class _Problem(TypedDict):
    detail: str
    kind: str
    status: int
    title: str
    type: str


class Problem(_Problem, total=False):
    errors: list[ProblemField]
    hint: str
    holder: Holder
    request_id: str


class _ProblemField(TypedDict):
    field: str
    message: str


class ProblemField(_ProblemField, total=False):
    document: str
    hint: str
    pointer: str


class ProjectImages(TypedDict):
    project: str
    quota_bytes: int
    used_bytes: int


class ProviderTest(TypedDict):
    ok: bool
    probes: list[Probe]


class Readiness(TypedDict):
    checks: list[Check]
    ready: bool


class _Release(TypedDict):
    kubernetes: str


class Release(_Release, total=False):
    clusters: list[str]
    components: dict[str, str]
    digest: str
    directory: str
    file: ReleaseFile
    name: str
    refused: str
    signed_by: str
    unsigned: str


class _ReleaseFetch(TypedDict):
    url: str


class ReleaseFetch(_ReleaseFetch, total=False):
    ca: str
    password: str
    user: str


class ReleaseFetchAt(TypedDict):
    url: str


class _ReleaseFetchJob(TypedDict):
    id: str
    stage: str


class ReleaseFetchJob(_ReleaseFetchJob, total=False):
    done: int
    problem: Problem
    total: int
    upload: Upload


class _ReleaseFile(TypedDict):
    arch: str
    digest: str
    images: int
    imported_at: str
    kubernetes: str
    name: str
    size: int


class ReleaseFile(_ReleaseFile, total=False):
    imported_by: str


class _ReleaseImport(TypedDict):
    upload: str


class ReleaseImport(_ReleaseImport, total=False):
    unsigned: str


class _ReleaseJob(TypedDict):
    id: str
    stage: str


class ReleaseJob(_ReleaseJob, total=False):
    done: int
    file: ReleaseFile
    problem: Problem
    total: int


class ReleaseLeft(TypedDict):
    digest: str
    name: str
    size: int


class Releases(TypedDict):
    items: list[Release]


class ReleasesPruned(TypedDict):
    dry_run: bool
    items: list[ReleaseLeft]


class _RestoreBackup(TypedDict):
    backup: str


class RestoreBackup(_RestoreBackup, total=False):
    new_masters: bool


class RoleChange(TypedDict):
    role: str


class RotateCertificates(TypedDict, total=False):
    cold: bool
    end_before: str
    made_before: str


class _Schedule(TypedDict):
    cron: str
    deadline_seconds: float
    generation: int
    job: str
    name: str
    runs: list[ScheduleRun]
    suspended: bool
    time_zone: str


class Schedule(_Schedule, total=False):
    next: str
    params: dict[str, Any]


class _ScheduleRun(TypedDict):
    attempt: int
    job: str
    slot: str
    status: str


class ScheduleRun(_ScheduleRun, total=False):
    by: str
    finished_at: str
    hint: str
    message: str
    missed: int
    plan: str
    started_at: str


class Schedules(TypedDict):
    items: list[Schedule]


class _SeenCertificate(TypedDict):
    begins_at: str
    ends_at: str
    fingerprint: str
    issuer: str
    name: str
    place: str
    seen_at: str
    serial: str
    source: str
    subject: str


class SeenCertificate(_SeenCertificate, total=False):
    authority: bool
    cluster: str
    node: str
    problem: str
    stale: bool


class _SeenCertificates(TypedDict):
    items: list[SeenCertificate]


_SeenCertificatesOdd = TypedDict("_SeenCertificatesOdd", {
    "continue": "str",
}, total=False)


class SeenCertificates(_SeenCertificates, _SeenCertificatesOdd, total=False):
    pass


class Session(TypedDict):
    expires_at: str
    must_change_password: bool
    role: str
    token: str
    user: str


class _Settings(TypedDict):
    approval: str
    node_shells: int
    plan_life_seconds: int


class Settings(_Settings, total=False):
    notice: str


class _Step(TypedDict):
    attempt: int
    attempts: int
    effects: list[Effect]
    estimate_seconds: float
    failures: int
    id: str
    kind: str
    needs: list[str]
    status: str
    timeout_seconds: float
    title: str


class Step(_Step, total=False):
    finished_at: str
    hint: str
    message: str
    node: str
    not_before: str
    params: Any
    safety: str
    since: str
    started_at: str
    undoes: list[str]
    window: str


class StepGroup(TypedDict):
    kind: str
    name: str
    statuses: dict[str, int]


class _Steps(TypedDict):
    items: list[Step]
    last_event: int
    statuses: dict[str, int]
    total: int


_StepsOdd = TypedDict("_StepsOdd", {
    "continue": "str",
}, total=False)


class Steps(_Steps, _StepsOdd, total=False):
    pass


class _Stream(TypedDict):
    items: list[StreamEvent]
    last: int


class Stream(_Stream, total=False):
    gap: StreamGap


class _StreamEvent(TypedDict):
    at: str
    id: int
    kind: str
    name: str
    source: str
    what: str


class StreamEvent(_StreamEvent, total=False):
    attempt: int
    by: str
    cluster: str
    hint: str
    message: str
    seq: int
    step: str


class StreamGap(TypedDict):
    after: int
    through: int


class Summary(TypedDict):
    at: str
    certificates: Certificates
    cluster_status: dict[str, int]
    clusters: int
    conditions: dict[str, int]
    mine: int
    nodes: int
    plans: dict[str, int]
    problems: int
    releases: dict[str, int]
    waits: dict[str, int]


class TrustedAuthority(TypedDict):
    ends: str
    fingerprint: str
    signs: bool
    subject: str


class _Upload(TypedDict):
    id: str
    kind: str
    offset: int
    size: int


class Upload(_Upload, total=False):
    by: str
    name: str
    unchecked: bool


class _UploadRequest(TypedDict):
    size: int


class UploadRequest(_UploadRequest, total=False):
    checksum: str
    compat: str
    format: str
    kind: str
    name: str
    sha256: str
    signature: str
    unsigned: str


class _User(TypedDict):
    created_at: str
    must_change_password: bool
    name: str
    role: str
    service: bool


class User(_User, total=False):
    checked_at: str
    disabled_at: str
    full_name: str
    login_at: str
    password_at: str
    provider: str


class UserCode(TypedDict):
    code: str


class _Users(TypedDict):
    items: list[User]


_UsersOdd = TypedDict("_UsersOdd", {
    "continue": "str",
}, total=False)


class Users(_Users, _UsersOdd, total=False):
    pass


class _VM(TypedDict):
    name: str
    owner: str
    provider: str


class VM(_VM, total=False):
    address: str
    cluster: str
    cpus: int
    director: str
    host: str
    id: str
    machine: str
    memory_bytes: int
    power: str
    state: str


class VMAdopt(TypedDict, total=False):
    address: str
    addresses: dict[str, str]


class VMReclaim(TypedDict, total=False):
    data_disks: bool


class VMs(TypedDict):
    items: list[VM]
    providers: list[Compared]


class _Version(TypedDict):
    go: str
    version: str


class Version(_Version, total=False):
    commit: str


class _Wait(TypedDict):
    reason: str


class Wait(_Wait, total=False):
    deadline: str
    owner: str
    since: str
    step: str


class _Window(TypedDict):
    id: str
    size: int


class Window(_Window, total=False):
    goal: str
    per_host: int


class Client:
    """The director at an address, as the owner of a token sees it. It may be used by one thread at a time.

    url is https://HOST[:PORT]. token is an API token, or that of a login. ca_file names the certificates in PEM that
    the director's is trusted by; without it, those of the system are taken. timeout is in seconds, of each request.
    """

    def __init__(self, url: str, token: str = "", ca_file: str | None = None, timeout: float = 60) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise ValueError("the address of a director is https://HOST[:PORT]")
        if any(c not in "!#$%&'*+-./:=@^_|~" and not (c.isascii() and c.isalnum()) for c in token):
            raise ValueError("the token has characters that no token has")
        self._url = url.rstrip("/") + "/api/v1"
        self._token = token
        self._timeout = timeout
        context = ssl.create_default_context(cafile=ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()
        )

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        body: Any = None,
        kind: str = "",
        answer: str = "json",
        token: bool = True,
    ) -> Any:
        asked = {k: _query(v) for k, v in (query or {}).items() if v is not None}
        url = self._url + path + ("?" + urllib.parse.urlencode(asked) if asked else "")
        sent = {k: str(v) for k, v in (headers or {}).items() if v is not None}
        sent["Accept"] = {"json": "application/json", "text": "application/yaml"}.get(answer, "*/*")
        data = None
        if kind == "json":
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        elif kind == "yaml":
            data, sent["Content-Type"] = body.encode(), "application/yaml"
        elif kind == "bytes":
            data, sent["Content-Type"] = body, "application/offset+octet-stream"
        if token and self._token:
            sent["Authorization"] = "Bearer " + self._token
        request = urllib.request.Request(url, data=data, headers=sent, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as err:
            raise self._problem(err) from None
        except (OSError, EOFError, ValueError) as err:
            reason = getattr(err, "reason", err)
            raise Unreachable(f"the director at {self._url} does not answer: {reason}") from None
        if answer == "json":
            return json.loads(text)
        if answer == "text":
            return text.decode()
        return text if answer == "bytes" else None

    @staticmethod
    def _problem(err: urllib.error.HTTPError) -> DirectorError:
        try:
            p = json.loads(err.read())
            return DirectorError(p["kind"], p["detail"], err.code, p.get("hint", ""), p.get("errors"))
        except (OSError, ValueError, KeyError, TypeError):  # a proxy, or another program
            return DirectorError("internal", f"the answer ({err.code}) is not that of a director", err.code)
        finally:
            err.close()

    def wait_for_plan(self, plan: str, timeout: float = 7200, every: float = 2) -> Plan:
        """Wait until the plan moves no further by itself, and return it without its steps.

        A director that does not answer for a while is asked again. Raises TimeoutError after timeout seconds.
        """
        end = time.monotonic() + timeout
        while True:
            try:
                now = self.get_plan(plan, steps=False)
                if now["status"] in STILL:
                    return now
            except DirectorError as err:
                if err.kind not in ("unavailable", "exhausted"):
                    raise
            if time.monotonic() + every > end:
                raise TimeoutError(f"plan {plan} did not end within {timeout:g} s")
            time.sleep(every)

    def wait_for_phase(self, task: str, timeout: float = 7200, every: float = 2) -> PhaseTask:
        """Wait until the task of an outer plan moves no further by itself, and return it.

        A director that restarts is asked again. Raises TimeoutError after timeout seconds.
        """
        end = time.monotonic() + timeout
        while True:
            try:
                now = self.get_phase(task)
                if now["state"] in ("done", "parked", "failed"):
                    return now
            except DirectorError as err:
                if err.kind not in ("unavailable", "exhausted"):
                    raise
            if time.monotonic() + every > end:
                raise TimeoutError(f"task {task} did not end within {timeout:g} s")
            time.sleep(every)

    def send_file(self, path: str, kind: str, sha256: str = "") -> Upload:
        """Upload a file, and return the upload, whose id is the file's SHA-256.

        What has arrived before is not sent again. kind is image or release; an upgrade of the appliance is a release.
        """
        sha256 = sha256 or file_sha256(path)
        with open(path, "rb") as f:
            size = f.seek(0, 2)
            upload = self.begin_upload({"sha256": sha256, "size": size, "kind": kind, "name": path.rpartition("/")[2]})
            while upload["offset"] < size:
                f.seek(upload["offset"])
                upload = self.add_to_upload(upload["id"], f.read(PIECE), upload_offset=upload["offset"])
        return upload

    def abort_upload(self, id: str) -> None:
        """Throw an upload away."""
        return self._request(
            "DELETE", f"/uploads/{_quote(id)}",
            answer="none",
        )

    def add_to_upload(self, id: str, body: bytes, *, upload_offset: int | None = None) -> Upload:
        """Send a piece of a file.

        The piece may be of any length. What has arrived before a cut stays: ask for the offset and go on there. A
        beginning that is no disk image, and more than was said, are refused, and the upload is gone.
        """
        return self._request(
            "PATCH", f"/uploads/{_quote(id)}",
            headers={"Upload-Offset": upload_offset},
            body=body, kind="bytes",
            answer="json",
        )

    def adopt_vm(self, name: str, vm: str, body: VMAdopt) -> VM:
        """Write an orphan into the ledger again.

        For a VM with our stamp whose cluster still exists; the next plan of the cluster sees it. A VM that is in the
        ledger is written down where it is now. Nothing happens to the VM itself.
        """
        return self._request(
            "POST", f"/providers/{_quote(name)}/vms/{_quote(vm)}/adopt",
            body=body, kind="json",
            answer="json",
        )

    def agree_campaign(self, id: str, body: CampaignAgree) -> Campaign:
        """Agree to a wave of a campaign.

        Its plans start in their turn. The hash must be the wave's own: it says which plans were read. A plan that is
        another one when its wave comes up has to be agreed to again.
        """
        return self._request(
            "POST", f"/campaigns/{_quote(id)}/agree",
            body=body, kind="json",
            answer="json",
        )

    def allow_login(self, id: str) -> Answered:
        """Let a program in as yourself.

        The program gets a session of its own, which is listed and can be ended. It works in a browser's session
        alone.
        """
        return self._request(
            "POST", f"/logins/{_quote(id)}/allow",
            answer="json",
        )

    def answer_hook_delivery(self, delivery: str, body: HookAnswer) -> HookDelivery:
        """Answer what a plan asks.

        For an endpoint that has answered 202, and for persons. The first answer counts: the same again changes
        nothing, and another one is a conflict.
        """
        return self._request(
            "POST", f"/hook-deliveries/{_quote(delivery)}/answer",
            body=body, kind="json",
            answer="json",
        )

    def apply(
        self,
        body: str,
        *,
        dry_run: bool | None = None,
        source: str | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> Applied:
        """Store documents, all or none.

        The body is a stream of YAML documents, or one document in JSON. Documents that are named by others may stand
        in any order.
        """
        return self._request(
            "POST", "/apply",
            query={"dry_run": dry_run, "source": source},
            headers={"Idempotency-Key": idempotency_key, "If-Match": if_match, "If-None-Match": if_none_match},
            body=body, kind="yaml",
            answer="json",
        )

    def approve_plan(self, id: str, body: PlanStart, *, idempotency_key: str | None = None) -> Plan:
        """Agree to a plan's start.

        The hash must be the plan's own: it says which plan was read. The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/approve",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def ask_phase(self, body: PhaseRequest) -> PhaseTask:
        """Tell what an outer plan is about to do with a host, or has done.

        Happens once for each task id: the same request again returns the same task and starts nothing twice, another
        request with the id is a conflict. What is in the way from the beginning is a conflict too, and is not kept,
        so the id can be used again. A cluster that another plan holds is waited for: the task continues when a person
        asks for it, here or at its place. The phase director upgrades the appliance of a director, which continues
        the task by itself, through its restart; it needs who may upgrade the appliance.
        """
        return self._request(
            "POST", "/phases",
            body=body, kind="json",
            answer="json",
        )

    def audit_vms(self, *, provider: list[str] | None = None) -> Audit:
        """Compare the ledger of VMs with what the hypervisors have.

        Orphans have our stamp and no row, ghosts a row and no VM, strangers the name of one of our nodes, twins the
        stamp of another VM; drift is a VM that is not as its row says. Orphan disks have our stamp and no row in the
        ledger, ghost disks are kept there and are not to be found or not free. Clusters that a plan works on, or has
        left half way, are left out where they may differ. Nothing is changed.
        """
        return self._request(
            "GET", "/vms/audit",
            query={"provider": provider},
            answer="json",
        )

    def begin_upload(self, body: UploadRequest) -> Upload:
        """Begin to upload a file, or find how far it is.

        The checksum is the id, so that everyone who has the file finds its upload again. One to which nothing is
        added for a day is thrown away.
        """
        return self._request(
            "POST", "/uploads",
            body=body, kind="json",
            answer="json",
        )

    def break_glass(self, name: str, body: BreakGlass) -> str:
        """Mint a kubeconfig that the cluster accepts whatever its own rules say.

        For a cluster whose RBAC is broken, or that the director does not reach. Nothing ends it before its time. It
        needs the password of who asks, and is an audit event of its own.
        """
        return self._request(
            "POST", f"/clusters/{_quote(name)}/break-glass",
            body=body, kind="json",
            answer="text",
        )

    def cancel_plan(self, id: str, body: PlanCancel, *, idempotency_key: str | None = None) -> Plan:
        """Stop a plan between steps.

        No error if it has ended. The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/cancel",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def cancel_release_fetch(self, body: ReleaseFetchAt) -> None:
        """End the caller's fetch from an address and throw away what has arrived.

        It is no error if there is none. A bundle that was imported stays.
        """
        return self._request(
            "POST", "/release-fetches/cancel",
            body=body, kind="json",
            answer="none",
        )

    def change_director_authority(self, body: DirectorAuthorityChange) -> DirectorAuthority:
        """Bring the change of the director's authority to its next stage.

        The stages are trust, use and none. A stage that it is in already is no error. Use and none are refused while
        nodes do not trust the next authority. Directors on one database follow: a stage is refused while one of them
        has not taken the stage before.
        """
        return self._request(
            "POST", "/director-authority",
            body=body, kind="json",
            answer="json",
        )

    def change_password(self, body: PasswordChange) -> None:
        """Change the own password.

        All other sessions of the user end. API tokens stay.
        """
        return self._request(
            "POST", "/password",
            body=body, kind="json",
            answer="none",
        )

    def check_cluster(self, name: str, body: PlanRequest) -> Checked:
        """Say everything that a plan would be refused for.

        Image and release, names, addresses, quotas, capacity and the provider itself are looked at. Nothing is
        stored, and nothing happens.
        """
        return self._request(
            "POST", f"/clusters/{_quote(name)}/check",
            body=body, kind="json",
            answer="json",
        )

    def compare_plans(self, id: str, *, older: str | None = None) -> PlanComparison:
        """Tell how a plan differs from an older one of its cluster."""
        return self._request(
            "GET", f"/plans/{_quote(id)}/compare",
            query={"older": older},
            answer="json",
        )

    def convert_image(self, sha256: str, body: ImageConversion) -> ImageJob:
        """Make another image of an imported one.

        The new image has a checksum of its own. The old one stays.
        """
        return self._request(
            "POST", f"/images/{_quote(sha256)}/convert",
            body=body, kind="json",
            answer="json",
        )

    def create_campaign(self, body: CampaignNew, *, idempotency_key: str | None = None) -> Campaign:
        """Make a campaign: one change for many clusters.

        It is for the clusters of the selector that the caller may change. A frozen plan of each is made afterwards,
        and nothing starts before a person agrees to the first wave.
        """
        return self._request(
            "POST", "/campaigns",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def create_own_token(self, body: NewToken) -> CreatedToken:
        """Create an API token of your own.

        It needs the password again, and the token is shown this once.
        """
        return self._request(
            "POST", "/tokens",
            body=body, kind="json",
            answer="json",
        )

    def create_user(self, body: NewUser) -> OneTimePassword:
        """Create a user.

        The answer has a one-time password, which is shown this once and must be changed at the first login.
        """
        return self._request(
            "POST", "/users",
            body=body, kind="json",
            answer="json",
        )

    def create_user_token(self, name: str, body: NewToken) -> CreatedToken:
        """Create an API token for a service account.

        The token is shown this once. People create their own tokens.
        """
        return self._request(
            "POST", f"/users/{_quote(name)}/tokens",
            body=body, kind="json",
            answer="json",
        )

    def delete_backup(self, backup: str) -> None:
        """Delete a backup."""
        return self._request(
            "DELETE", f"/backups/{_quote(backup)}",
            answer="none",
        )

    def delete_credentials(self, name: str) -> None:
        """Delete credentials that no provider names."""
        return self._request(
            "DELETE", f"/credentials/{_quote(name)}",
            answer="none",
        )

    def delete_disk(self, name: str, disk: str) -> Disk:
        """Destroy a kept disk.

        The disk and everything on it is lost. Only a disk that no machine and no VM has. One that others had attached
        is taken off the list, and not destroyed. It can be repeated until the disk is gone.
        """
        return self._request(
            "DELETE", f"/providers/{_quote(name)}/disks/{_quote(disk)}",
            answer="json",
        )

    def delete_document(self, kind: str, name: str, *, if_match: str | None = None) -> None:
        """Delete a document that nothing uses.

        The machines of a cluster are never deleted by this: make a plan with the operation cluster.delete for it.
        """
        return self._request(
            "DELETE", f"/documents/{_quote(kind)}/{_quote(name)}",
            headers={"If-Match": if_match},
            answer="none",
        )

    def delete_image_file(self, sha256: str) -> None:
        """Delete an imported file that nothing needs."""
        return self._request(
            "DELETE", f"/images/{_quote(sha256)}",
            answer="none",
        )

    def delete_release_file(self, digest: str) -> None:
        """Delete an imported bundle that nothing needs."""
        return self._request(
            "DELETE", f"/releases/{_quote(digest)}",
            answer="none",
        )

    def delete_user(self, name: str) -> None:
        """Delete a user with all sessions.

        The last enabled admin cannot be deleted.
        """
        return self._request(
            "DELETE", f"/users/{_quote(name)}",
            answer="none",
        )

    def disable_user(self, name: str) -> User:
        """Disable a user.

        All sessions and API tokens of the user end at once. The last enabled admin cannot be disabled.
        """
        return self._request(
            "POST", f"/users/{_quote(name)}/disable",
            answer="json",
        )

    def discard_plan(self, id: str, *, idempotency_key: str | None = None) -> Plan:
        """Give up a plan that does not run.

        Its cluster is free for another plan afterwards. The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/discard",
            headers={"Idempotency-Key": idempotency_key},
            answer="json",
        )

    def discover_draft(self, body: DiscoverRequest) -> Discovery:
        """Tell what a provider has that is not stored yet.

        The answer is that of a stored provider. The document in the request needs a type, an address and an account;
        the names that are looked for may be missing or wrong. The account is that of the request, or the sealed
        credentials that the document names, unless those were set for another address. Nothing is stored but who
        asked which address, in the audit trail. Who asks may also set credentials. One such request of a person runs
        at a time, for 25 seconds at most.
        """
        return self._request(
            "POST", "/providers/discover",
            body=body, kind="json",
            answer="json",
        )

    def discover_provider(self, name: str) -> Discovery:
        """Tell what a provider has that documents may name.

        Hosts; of libvirt storage pools, networks and bridges; of vSphere datacenters, clusters, resource pools,
        datastores, port groups, folders and templates. The hypervisor is asked, for 25 seconds at most. Nothing is
        changed. At most 500 items of each kind are told.
        """
        return self._request(
            "GET", f"/providers/{_quote(name)}/discovery",
            answer="json",
        )

    def enable_user(self, name: str) -> User:
        """Enable a user.

        Sessions from before do not come back.
        """
        return self._request(
            "POST", f"/users/{_quote(name)}/enable",
            answer="json",
        )

    def end_campaign(self, id: str, body: CampaignReason) -> Campaign:
        """End a campaign for good.

        Nothing starts any more; running plans continue.
        """
        return self._request(
            "POST", f"/campaigns/{_quote(id)}/end",
            body=body, kind="json",
            answer="json",
        )

    def end_own_session(self, id: str) -> None:
        """End one of the own sessions."""
        return self._request(
            "DELETE", f"/sessions/{_quote(id)}",
            answer="none",
        )

    def end_user_session(self, name: str, id: str) -> None:
        """End a session of a user."""
        return self._request(
            "DELETE", f"/users/{_quote(name)}/sessions/{_quote(id)}",
            answer="none",
        )

    def export_audit(self, *, from_: str | None = None, until: str | None = None) -> bytes:
        """Download the audit trail.

        Lines of JSON that can be verified without the director. It ends with a signed checkpoint. The export is noted
        in the trail.
        """
        return self._request(
            "GET", "/audit/export",
            query={"from": from_, "until": until},
            answer="bytes",
        )

    def export_inventory(self, name: str, body: InventoryExport) -> Inventory:
        """Export what a person runs playbooks of the cluster with.

        The inventory with the keys of the cluster's authorities and an SSH key whose certificate ends soon. It needs
        the password of who asks, also with a valid token, and is an audit event of its own.
        """
        return self._request(
            "POST", f"/clusters/{_quote(name)}/inventory",
            body=body, kind="json",
            answer="json",
        )

    def extract_backup(self, backup: str, body: BackupExtract) -> BackupObjects:
        """Read objects of a namespace out of a backup.

        The objects as they were when the backup was made, Secrets too. Nothing is changed in the cluster. It needs
        the password of who asks, also with a valid token, and is an audit event of its own.
        """
        return self._request(
            "POST", f"/backups/{_quote(backup)}/objects",
            body=body, kind="json",
            answer="json",
        )

    def fetch_release(self, body: ReleaseFetch) -> ReleaseFetchJob:
        """Fetch an archive of a release bundle from a mirror.

        The director fetches the file itself, and continues after a cut from where it was. The result is an upload,
        which import-release then imports. Asked again, also after a failure or a restart of the director, it
        continues. The director connects only to addresses in mirrorNetworks of its configuration. One to which
        nothing is added for a day is thrown away.
        """
        return self._request(
            "POST", "/release-fetches",
            body=body, kind="json",
            answer="json",
        )

    def find_login(self, body: UserCode) -> Asking:
        """Find the program that shows a code.

        The program waits to be let in. It works in a browser's session alone.
        """
        return self._request(
            "POST", "/logins/find",
            body=body, kind="json",
            answer="json",
        )

    def get_appliance(self) -> Appliance:
        """Show which directors the appliance has, and how far an upgrade is.

        A director that runs on another machine answers that there is none.
        """
        return self._request(
            "GET", "/appliance",
            answer="json",
        )

    def get_archive(self, id: str) -> bytes:
        """Download all that is known of a plan, for support.

        A tar.gz with the plan, its events, the logs of all attempts, the inventory, the versions of all parts and the
        director's configuration. Secrets are left out. It is noted in the audit trail.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/archive",
            answer="bytes",
        )

    def get_audit_key(self) -> AuditKey:
        """Get the key that verifies the audit trail without the director.

        Keep it where the director's administrators cannot write.
        """
        return self._request(
            "GET", "/audit/key",
            answer="json",
        )

    def get_backup(self, backup: str) -> Backup:
        """Show a backup."""
        return self._request(
            "GET", f"/backups/{_quote(backup)}",
            answer="json",
        )

    def get_campaign(self, id: str) -> Campaign:
        """Get a campaign with its waves and clusters."""
        return self._request(
            "GET", f"/campaigns/{_quote(id)}",
            answer="json",
        )

    def get_capacity(
        self,
        *,
        provider: list[str] | None = None,
        cluster: str | None = None,
        cpus: int | None = None,
        memory: str | None = None,
        disk: str | None = None,
    ) -> Capacities:
        """Tell what hosts have left, and what still fits.

        Under each provider's policy of overcommitment and its quotas. The hypervisors are asked.
        """
        return self._request(
            "GET", "/capacity",
            query={"provider": provider, "cluster": cluster, "cpus": cpus, "memory": memory, "disk": disk},
            answer="json",
        )

    def get_cluster(self, name: str) -> Cluster:
        """Get the state of a cluster."""
        return self._request(
            "GET", f"/clusters/{_quote(name)}",
            answer="json",
        )

    def get_cluster_health(self, name: str) -> ClusterHealth:
        """Tell how a cluster is, by its nodes as they were seen last.

        No cluster is asked: the director looks at every cluster about once a minute.
        """
        return self._request(
            "GET", f"/clusters/{_quote(name)}/health",
            answer="json",
        )

    def get_console(self, name: str, node: str, *, bytes: int | None = None) -> ConsoleText:
        """Show the end of what a node's VM has printed on its serial console.

        The hypervisor is asked. The text has the control sequences of a terminal in it.
        """
        return self._request(
            "GET", f"/clusters/{_quote(name)}/nodes/{_quote(node)}/console",
            query={"bytes": bytes},
            answer="json",
        )

    def get_director_authority(self) -> DirectorAuthority:
        """Show the authority of the director itself, and how far its change is.

        It signs the certificate of the API and of the registry. Clients trust all of `trusted`.
        """
        return self._request(
            "GET", "/director-authority",
            answer="json",
        )

    def get_document(self, kind: str, name: str, *, if_none_match: str | None = None) -> Document:
        """Get one document.

        The ETag names the version that was read, for If-Match and If-None-Match.
        """
        return self._request(
            "GET", f"/documents/{_quote(kind)}/{_quote(name)}",
            headers={"If-None-Match": if_none_match},
            answer="json",
        )

    def get_effects(
        self,
        id: str,
        *,
        verb: str | None = None,
        object: str | None = None,
        limit: int | None = None,
    ) -> EffectGroups:
        """Show what a plan does to the world.

        Effects that do the same to the same kind of object are one group. Groups are in the order of the steps.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/effects",
            query={"verb": verb, "object": object, "limit": limit},
            answer="json",
        )

    def get_image_job(self, id: str) -> ImageJob:
        """See how far the work on an image is.

        A director that was started again does not know its jobs any more: ask for the same import again.
        """
        return self._request(
            "GET", f"/image-jobs/{_quote(id)}",
            answer="json",
        )

    def get_inventory(self, name: str, *, secrets: bool | None = None) -> Inventory:
        """Render what a playbook run of the cluster would get."""
        return self._request(
            "GET", f"/clusters/{_quote(name)}/inventory",
            query={"secrets": secrets},
            answer="json",
        )

    def get_kubeconfig(self, name: str) -> str:
        """Get a kubeconfig with which everyone uses the cluster as oneself.

        It holds no secret, and is the same for everyone: kubectl runs directorctl kube-token, which gets a token for
        who is logged in.
        """
        return self._request(
            "GET", f"/clusters/{_quote(name)}/kubeconfig",
            answer="text",
        )

    def get_log(
        self,
        id: str,
        *,
        step: str | None = None,
        attempt: int | None = None,
        offset: int | None = None,
    ) -> bytes:
        """Read the log of a step.

        Lines of JSON up to where the log ends now. To follow it, ask again with the offset increased by the bytes
        received.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/log",
            query={"step": step, "attempt": attempt, "offset": offset},
            answer="bytes",
        )

    def get_login(self, id: str) -> Asking:
        """Get the program that has sent the browser.

        The program waits to be let in. It works in a browser's session alone.
        """
        return self._request(
            "GET", f"/logins/{_quote(id)}",
            answer="json",
        )

    def get_matrix(
        self,
        id: str,
        *,
        status: list[str] | None = None,
        q: str | None = None,
        continue_: str | None = None,
        limit: int | None = None,
    ) -> Matrix:
        """Show a plan by nodes and groups of steps.

        A group is the steps that do the same for different nodes. A cell says how far the steps of a group are for a
        node. Rollback steps that have nothing to undo are left out.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/matrix",
            query={"status": status, "q": q, "continue": continue_, "limit": limit},
            answer="json",
        )

    def get_phase(self, task_id: str) -> PhaseTask:
        """Get a task of an outer plan.

        A task that waits continues if it can now.
        """
        return self._request(
            "GET", f"/phases/{_quote(task_id)}",
            answer="json",
        )

    def get_plan(self, id: str, *, steps: bool | None = None, machines: bool | None = None) -> Plan:
        """Get a plan with the state of its run."""
        return self._request(
            "GET", f"/plans/{_quote(id)}",
            query={"steps": steps, "machines": machines},
            answer="json",
        )

    def get_plan_documents(self, id: str) -> PlanDocuments:
        """Show the document that a plan puts into force, and the one before it.

        Both are as they were when the plan was made. Documents that a plan only reads are in its models.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/documents",
            answer="json",
        )

    def get_project_images(self, name: str) -> ProjectImages:
        """Tell how much of its quota the images of a project use.

        What people have pushed; what several images share counts once.
        """
        return self._request(
            "GET", f"/projects/{_quote(name)}/images",
            answer="json",
        )

    def get_release_fetch(self, id: str) -> ReleaseFetchJob:
        """See how far a fetch is.

        A director that was started again does not know its jobs any more: ask for the same fetch again.
        """
        return self._request(
            "GET", f"/release-fetches/{_quote(id)}",
            answer="json",
        )

    def get_release_job(self, id: str) -> ReleaseJob:
        """See how far an import is.

        A director that was started again does not know its jobs any more: ask for the same import again.
        """
        return self._request(
            "GET", f"/release-jobs/{_quote(id)}",
            answer="json",
        )

    def get_schedule(self, name: str) -> Schedule:
        """Get a schedule with its last runs."""
        return self._request(
            "GET", f"/schedules/{_quote(name)}",
            answer="json",
        )

    def get_schema(self, kind: str, *, if_none_match: str | None = None) -> bytes:
        """Get the JSON Schema of documents of a kind."""
        return self._request(
            "GET", f"/schemas/{_quote(kind)}",
            headers={"If-None-Match": if_none_match},
            answer="bytes",
        )

    def get_settings(self) -> Settings:
        """Get what the director's configuration says that clients go by."""
        return self._request(
            "GET", "/settings",
            answer="json",
        )

    def get_upload(self, id: str) -> Upload:
        """See how much of a file has arrived."""
        return self._request(
            "GET", f"/uploads/{_quote(id)}",
            answer="json",
        )

    def get_user(self, name: str) -> User:
        """Get a user."""
        return self._request(
            "GET", f"/users/{_quote(name)}",
            answer="json",
        )

    def healthz(self) -> None:
        """Say that the process answers."""
        return self._request(
            "GET", "/healthz",
            token=False,
            answer="none",
        )

    def import_certificate_authority(self, name: str, body: AuthorityImport) -> Authority:
        """Import the certificate of an authority.

        For the type csr. The certificate is checked, and an authority is signed on trial.
        """
        return self._request(
            "POST", f"/certificate-authorities/{_quote(name)}/certificate",
            body=body, kind="json",
            answer="json",
        )

    def import_image(self, body: ImageImport) -> ImageJob:
        """Make an image of an upload.

        The file is checked, converted to qcow2 if it is none, and kept by its checksum, which a document of the kind
        Image then names. Asked again, the answer is the same job, or its end. A file that is wrong is thrown away.
        Without a signature of a trusted key the import is refused, unless unsigned says in words why.
        """
        return self._request(
            "POST", "/images",
            body=body, kind="json",
            answer="json",
        )

    def import_release(self, body: ReleaseImport) -> ReleaseJob:
        """Import an uploaded archive of a release bundle.

        The archive is unpacked, verified as a whole, and kept by its digest, which a document of the kind Release
        then names. Asked again, the answer is the same job, or its end. An archive that is wrong is thrown away.
        Without a signature of a trusted key the import is refused, unless unsigned says in words why.
        """
        return self._request(
            "POST", "/releases",
            body=body, kind="json",
            answer="json",
        )

    def issue_cluster_token(self, name: str) -> ClusterToken:
        """Get a token for the API of a cluster, as yourself.

        It is good for ten minutes, and cannot be revoked. The cluster sees your name, and your roles on it as the
        groups role:admin, role:operator, role:user and role:auditor. directorctl kube-token asks for one whenever
        kubectl needs it.
        """
        return self._request(
            "POST", f"/clusters/{_quote(name)}/token",
            answer="json",
        )

    def list_all_nodes(
        self,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        q: str | None = None,
        cluster: list[str] | None = None,
        role: list[str] | None = None,
        condition: list[str] | None = None,
        host: str | None = None,
        version: str | None = None,
        problem: str | None = None,
        limit: int | None = None,
    ) -> FleetNodes:
        """List the nodes of all clusters as they were seen last.

        No cluster is asked: the director looks at every cluster about once a minute, and seen_at says when one
        answered last. Changes are events of the kind Node. Sorted by name, cluster, role, host, address, condition,
        version, seen_at or ends_at (the soonest end of a certificate). A part of the list comes with the continue of
        the next one, also as a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", "/nodes",
            query={
                "continue": continue_,
                "sort": sort,
                "fields": fields,
                "q": q,
                "cluster": cluster,
                "role": role,
                "condition": condition,
                "host": host,
                "version": version,
                "problem": problem,
                "limit": limit,
            },
            answer="json",
        )

    def list_audit(
        self,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        actor: str | None = None,
        action: str | None = None,
        object: str | None = None,
        outcome: str | None = None,
        from_: str | None = None,
        until: str | None = None,
        limit: int | None = None,
    ) -> AuditTrail:
        """Read the audit trail.

        The newest first, or by id. Entries that were archived are in files on the director. A part of the list comes
        with the continue of the next one, also as a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", "/audit",
            query={
                "continue": continue_,
                "sort": sort,
                "fields": fields,
                "actor": actor,
                "action": action,
                "object": object,
                "outcome": outcome,
                "from": from_,
                "until": until,
                "limit": limit,
            },
            answer="json",
        )

    def list_backups(self, *, cluster: str | None = None, late: bool | None = None) -> Backups:
        """List the backups of clusters.

        The newest first, with how old the newest backup of each cluster is. The targets are not asked. A plan with
        the operation cluster.backup makes one.
        """
        return self._request(
            "GET", "/backups",
            query={"cluster": cluster, "late": late},
            answer="json",
        )

    def list_campaigns(self) -> Campaigns:
        """List the campaigns with how far they are, the newest first; the newest 200."""
        return self._request(
            "GET", "/campaigns",
            answer="json",
        )

    def list_certificate_authorities(self) -> Authorities:
        """List the authorities that issue those of clusters.

        No server is asked.
        """
        return self._request(
            "GET", "/certificate-authorities",
            answer="json",
        )

    def list_certificates(
        self,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        cluster: str | None = None,
        director: bool | None = None,
        node: str | None = None,
        source: str | None = None,
        name: str | None = None,
        ends_before: str | None = None,
        limit: int | None = None,
    ) -> SeenCertificates:
        """List the certificates of clusters and of the director.

        As they were seen last; the director looks every ten minutes. Sorted by ends_at, seen_at, cluster, node or
        name. A part of the list comes with the continue of the next one, also as a Link header. With fields, items
        hold those fields alone.
        """
        return self._request(
            "GET", "/certificates",
            query={
                "continue": continue_,
                "sort": sort,
                "fields": fields,
                "cluster": cluster,
                "director": director,
                "node": node,
                "source": source,
                "name": name,
                "ends_before": ends_before,
                "limit": limit,
            },
            answer="json",
        )

    def list_clusters(
        self,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        name_prefix: str | None = None,
        q: str | None = None,
        facets: bool | None = None,
        label: list[str] | None = None,
        status: list[str] | None = None,
        version: list[str] | None = None,
        project: str | None = None,
        plan_status: list[str] | None = None,
        limit: int | None = None,
    ) -> Clusters:
        """List the clusters with their state.

        Sorted by name, status, version, nodes or created_at. A part of the list comes with the continue of the next
        one, also as a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", "/clusters",
            query={
                "continue": continue_,
                "sort": sort,
                "fields": fields,
                "name_prefix": name_prefix,
                "q": q,
                "facets": facets,
                "label": label,
                "status": status,
                "version": version,
                "project": project,
                "plan_status": plan_status,
                "limit": limit,
            },
            answer="json",
        )

    def list_consul_gaps(self, name: str) -> ConsulGaps:
        """List which nodes have no route to services of a Consul, and which hosts have none to clusters.

        The addresses of services, and those of members of the Consul outside of clusters, are compared with what
        Network documents say of routes. What routers outside of them do is not known. Nothing is changed.
        """
        return self._request(
            "GET", f"/consuls/{_quote(name)}/gaps",
            answer="json",
        )

    def list_consul_services(self, name: str) -> ConsulServices:
        """List what is registered in a Consul, with how it differs from what is wanted.

        The Consul is asked. Entries of the director's nodes are listed, those of programs in clusters too. Nothing is
        changed.
        """
        return self._request(
            "GET", f"/consuls/{_quote(name)}/services",
            answer="json",
        )

    def list_consuls(self) -> Consuls:
        """List Consuls with how their last comparisons went."""
        return self._request(
            "GET", "/consuls",
            answer="json",
        )

    def list_credentials(self) -> CredentialsList:
        """List the credentials of providers, without their passwords."""
        return self._request(
            "GET", "/credentials",
            answer="json",
        )

    def list_directors(self) -> DirectorVMs:
        """List the other directors whose VMs this one makes.

        None of them is asked.
        """
        return self._request(
            "GET", "/directors",
            answer="json",
        )

    def list_disks(
        self,
        *,
        provider: list[str] | None = None,
        cluster: str | None = None,
        plan: str | None = None,
    ) -> Disks:
        """List the disks that outlived their VMs.

        Data disks stay when their VMs go, and so do disks that others had attached. The hypervisors are asked; a
        provider that does not answer is named, and its disks are shown as the ledger has them.
        """
        return self._request(
            "GET", "/disks",
            query={"provider": provider, "cluster": cluster, "plan": plan},
            answer="json",
        )

    def list_documents(
        self,
        kind: str,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        name_prefix: str | None = None,
        label: list[str] | None = None,
        limit: int | None = None,
    ) -> Documents:
        """List documents of a kind.

        Sorted by name, created_at or updated_at. A part of the list comes with the continue of the next one, also as
        a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", f"/documents/{_quote(kind)}",
            query={
                "continue": continue_,
                "sort": sort,
                "fields": fields,
                "name_prefix": name_prefix,
                "label": label,
                "limit": limit,
            },
            answer="json",
        )

    def list_events(
        self,
        id: str,
        *,
        after: int | None = None,
        wait: int | None = None,
        kind: list[str] | None = None,
        step: str | None = None,
        limit: int | None = None,
    ) -> Events:
        """Follow what happens in a plan.

        A stream sends each event with its number as id, and a last message of the type end when the plan has ended.
        It can be taken up again with Last-Event-ID. Where events are not kept any more, a message of the type gap
        says which.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/events",
            query={"after": after, "wait": wait, "kind": kind, "step": step, "limit": limit},
            answer="json",
        )

    def list_hook_deliveries(
        self,
        *,
        hook: str | None = None,
        plan: str | None = None,
        state: list[str] | None = None,
        waiting: bool | None = None,
        limit: int | None = None,
        continue_: str | None = None,
    ) -> HookDeliveries:
        """List what hooks were told and asked, the newest first; of the last 30 days."""
        return self._request(
            "GET", "/hook-deliveries",
            query={
                "hook": hook,
                "plan": plan,
                "state": state,
                "waiting": waiting,
                "limit": limit,
                "continue": continue_,
            },
            answer="json",
        )

    def list_hook_keys(self, name: str) -> HookKeys:
        """Show the public keys that verify the requests of a hook."""
        return self._request(
            "GET", f"/hooks/{_quote(name)}/keys",
            answer="json",
        )

    def list_hooks(self) -> Hooks:
        """List the hooks with whether their endpoints are gone."""
        return self._request(
            "GET", "/hooks",
            answer="json",
        )

    def list_images(self) -> Images:
        """List the images and the imported files.

        The documents of images by name, and then the imported files that none names, the newest first.
        """
        return self._request(
            "GET", "/images",
            answer="json",
        )

    def list_keys(self, *, cluster: str | None = None) -> Keys:
        """List the keys of clusters and of the director that are no certificates.

        Their names, ids and ages, never a key. Of clusters: the keys of service account tokens, those that encrypt
        Secrets, and SSH authorities. Of the director: what signs tokens for clusters, and requests to hooks and
        notifications.
        """
        return self._request(
            "GET", "/keys",
            query={"cluster": cluster},
            answer="json",
        )

    def list_log_lines(
        self,
        id: str,
        *,
        step: str | None = None,
        attempt: int | None = None,
        from_: int | None = None,
        tail: int | None = None,
        limit: int | None = None,
    ) -> LogLines:
        """Read a window of the log of a step, or follow it from a line.

        A stream sends each line as a message of the type line with its number as id, and a message of the type end
        when the attempt has ended. It can be taken up again with Last-Event-ID.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/log/lines",
            query={"step": step, "attempt": attempt, "from": from_, "tail": tail, "limit": limit},
            answer="json",
        )

    def list_network_addresses(
        self,
        name: str,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        q: str | None = None,
        use: list[str] | None = None,
        limit: int | None = None,
    ) -> NetworkAddresses:
        """List the addresses of a network that are in use, and count the free ones of its pool.

        As the ledger and the documents have them: of nodes, virtual addresses, addresses that documents give to
        nodes, gateway, routers and name servers, and what the pool excludes. Sorted by address. No hypervisor is
        asked; a check of a cluster looks for strangers. A part of the list comes with the continue of the next one,
        also as a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", f"/networks/{_quote(name)}/addresses",
            query={"continue": continue_, "sort": sort, "fields": fields, "q": q, "use": use, "limit": limit},
            answer="json",
        )

    def list_nodes(self, name: str) -> Nodes:
        """Show the nodes of a cluster.

        What the director knows of each, what the hypervisor says of its VM, and what the cluster itself says. The
        cluster is asked; it may take seconds.
        """
        return self._request(
            "GET", f"/clusters/{_quote(name)}/nodes",
            answer="json",
        )

    def list_notification_keys(self, name: str) -> HookKeys:
        """Show the public keys that verify the requests of a notification."""
        return self._request(
            "GET", f"/notifications/{_quote(name)}/keys",
            answer="json",
        )

    def list_notification_messages(
        self,
        *,
        notification: str | None = None,
        limit: int | None = None,
        continue_: str | None = None,
    ) -> NotificationMessages:
        """List what was told and is due, the newest first; of the last 30 days."""
        return self._request(
            "GET", "/notification-messages",
            query={"notification": notification, "limit": limit, "continue": continue_},
            answer="json",
        )

    def list_notifications(self) -> Notifications:
        """List who is told what, with quiet times that last."""
        return self._request(
            "GET", "/notifications",
            answer="json",
        )

    def list_own_sessions(self) -> LoginSessions:
        """List the own sessions."""
        return self._request(
            "GET", "/sessions",
            answer="json",
        )

    def list_own_tokens(self) -> APITokens:
        """List your own API tokens."""
        return self._request(
            "GET", "/tokens",
            answer="json",
        )

    def list_plans(
        self,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        cluster: str | None = None,
        status: list[str] | None = None,
        operation: list[str] | None = None,
        id_prefix: str | None = None,
        archived: bool | None = None,
        limit: int | None = None,
    ) -> Plans:
        """List plans, the newest first.

        Sorted by created_at, started_at, finished_at, cluster or status. A part of the list comes with the continue
        of the next one, also as a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", "/plans",
            query={
                "continue": continue_,
                "sort": sort,
                "fields": fields,
                "cluster": cluster,
                "status": status,
                "operation": operation,
                "id_prefix": id_prefix,
                "archived": archived,
                "limit": limit,
            },
            answer="json",
        )

    def list_releases(self) -> Releases:
        """List the releases and the imported bundles.

        The documents of releases by name, and then the imported bundles that none names, the newest first.
        """
        return self._request(
            "GET", "/releases",
            answer="json",
        )

    def list_schedules(self) -> Schedules:
        """List the schedules with their next slots and last runs."""
        return self._request(
            "GET", "/schedules",
            answer="json",
        )

    def list_steps(
        self,
        id: str,
        *,
        step: list[str] | None = None,
        node: list[str] | None = None,
        group: list[str] | None = None,
        kind: list[str] | None = None,
        status: list[str] | None = None,
        q: str | None = None,
        started: bool | None = None,
        sort: str | None = None,
        continue_: str | None = None,
        fields: list[str] | None = None,
        limit: int | None = None,
    ) -> Steps:
        """List the steps of a plan with the state of each.

        In the plan's order, or in the order in which they started. A part of the list comes with the continue of the
        next one, also as a Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/steps",
            query={
                "step": step,
                "node": node,
                "group": group,
                "kind": kind,
                "status": status,
                "q": q,
                "started": started,
                "sort": sort,
                "continue": continue_,
                "fields": fields,
                "limit": limit,
            },
            answer="json",
        )

    def list_user_sessions(self, name: str) -> LoginSessions:
        """List the sessions of a user."""
        return self._request(
            "GET", f"/users/{_quote(name)}/sessions",
            answer="json",
        )

    def list_user_tokens(self, name: str) -> APITokens:
        """List the API tokens of a user."""
        return self._request(
            "GET", f"/users/{_quote(name)}/tokens",
            answer="json",
        )

    def list_users(
        self,
        *,
        continue_: str | None = None,
        sort: str | None = None,
        fields: list[str] | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> Users:
        """List the users.

        By name, by created_at or by login_at. A part of the list comes with the continue of the next one, also as a
        Link header. With fields, items hold those fields alone.
        """
        return self._request(
            "GET", "/users",
            query={"continue": continue_, "sort": sort, "fields": fields, "name": name, "limit": limit},
            answer="json",
        )

    def list_vms(self, *, provider: list[str] | None = None, strangers: bool | None = None) -> VMs:
        """List VMs as the ledger and the hypervisors have them.

        The hypervisors are asked; a provider that does not answer is named, and its VMs are shown as the ledger has
        them.
        """
        return self._request(
            "GET", "/vms",
            query={"provider": provider, "strangers": strangers},
            answer="json",
        )

    def list_waits(
        self,
        *,
        owner: str | None = None,
        cluster: str | None = None,
        mine: bool | None = None,
        limit: int | None = None,
    ) -> PlanWaits:
        """List what plans wait for: why, who ends it, since when and until when.

        Of plans that have not ended, and of the newest plans of clusters if they failed or were cancelled. The
        longest wait is first. Steps of a plan that wait for the same are one wait.
        """
        return self._request(
            "GET", "/waits",
            query={"owner": owner, "cluster": cluster, "mine": mine, "limit": limit},
            answer="json",
        )

    def login(self, body: Login) -> Session:
        """Get a token for a password."""
        return self._request(
            "POST", "/login",
            body=body, kind="json",
            token=False,
            answer="json",
        )

    def login_providers(self) -> LoginProviders:
        """List the identity providers where people log in with a browser."""
        return self._request(
            "GET", "/session/providers",
            token=False,
            answer="json",
        )

    def logout(self) -> None:
        """End the token."""
        return self._request(
            "POST", "/logout",
            answer="none",
        )

    def make_director_plan(self, name: str, body: DirectorPlanRequest, *, idempotency_key: str | None = None) -> Plan:
        """Freeze a plan for the VM of another director.

        Nothing happens to the VM until the plan is started, as those of clusters are. The answer has no steps and no
        machines.
        """
        return self._request(
            "POST", f"/directors/{_quote(name)}/plans",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def make_plan(self, name: str, body: PlanRequest, *, idempotency_key: str | None = None) -> Plan:
        """Freeze a plan for a cluster.

        Nothing happens to the cluster until the plan is started. steps_total 0 means that nothing is to be done. The
        answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/clusters/{_quote(name)}/plans",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def make_plan_again(self, id: str, *, idempotency_key: str | None = None) -> Plan:
        """Make a plan again that was not started.

        The new plan is for what the older one was asked for, and for the world as it is now. The older one is
        discarded. steps_total 0 means that nothing is to be done. The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/again",
            headers={"Idempotency-Key": idempotency_key},
            answer="json",
        )

    def me(self) -> Me:
        """Say who asks."""
        return self._request(
            "GET", "/me",
            answer="json",
        )

    def mint_kubeconfig(self, name: str, body: KubeconfigRequest) -> str:
        """Mint an administrator's kubeconfig with a client certificate of its own.

        It needs no director while it is good, and revoke-kubeconfigs ends it. The cluster is asked to accept it.
        """
        return self._request(
            "POST", f"/clusters/{_quote(name)}/kubeconfig",
            body=body, kind="json",
            answer="text",
        )

    def pause_campaign(self, id: str, body: CampaignReason) -> Campaign:
        """Start no further plan of a campaign.

        The running plans continue. No error if it is paused.
        """
        return self._request(
            "POST", f"/campaigns/{_quote(id)}/pause",
            body=body, kind="json",
            answer="json",
        )

    def pause_plan(self, id: str, body: PlanPause, *, idempotency_key: str | None = None) -> Plan:
        """Start no further steps.

        The running steps end, and the plan keeps its cluster. No error if it is paused. The answer has no steps and
        no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/pause",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def preview(self, body: str) -> Preview:
        """Say what documents would change, and which plans would be made.

        The body is as for apply. The answer has every problem with its place in the text, the difference to what is
        stored, and for each Cluster the plan that would be made, with what its hosts have left afterwards. Nothing is
        stored, and nothing happens.
        """
        return self._request(
            "POST", "/preview",
            body=body, kind="yaml",
            answer="json",
        )

    def preview_campaign(self, body: CampaignPreviewRequest) -> CampaignPreview:
        """Tell which clusters a campaign would be for, and what each would get.

        The campaign may be half written: the answer has everything that it would be refused for. Of the named
        clusters, 20 at most, it has the plan that each would get now. Nothing is stored.
        """
        return self._request(
            "POST", "/campaign-previews",
            body=body, kind="json",
            answer="json",
        )

    def prune_images(self, *, dry_run: bool | None = None, older_than: int | None = None) -> ImagesPruned:
        """Delete what is not needed.

        On providers the images that no document, no VM and no plan that can continue names; on the director the
        imported files of which the same is true.
        """
        return self._request(
            "POST", "/images/prune",
            query={"dry_run": dry_run, "older_than": older_than},
            answer="json",
        )

    def prune_releases(self, *, dry_run: bool | None = None, older_than: int | None = None) -> ReleasesPruned:
        """Delete what is not needed.

        The imported bundles that no document and no plan that can continue names.
        """
        return self._request(
            "POST", "/releases/prune",
            query={"dry_run": dry_run, "older_than": older_than},
            answer="json",
        )

    def readyz(self) -> Readiness:
        """Say that the director can work."""
        return self._request(
            "GET", "/readyz",
            token=False,
            answer="json",
        )

    def reclaim_vm(self, name: str, vm: str, body: VMReclaim) -> VM:
        """Delete an orphan.

        Only a VM with our stamp that no row and no plan knows. Its data disks stay unless data_disks is set. It can
        be repeated until the VM is gone.
        """
        return self._request(
            "POST", f"/providers/{_quote(name)}/vms/{_quote(vm)}/reclaim",
            body=body, kind="json",
            answer="json",
        )

    def refuse_login(self, id: str) -> Answered:
        """Refuse a program.

        The program is told. It works in a browser's session alone.
        """
        return self._request(
            "POST", f"/logins/{_quote(id)}/refuse",
            answer="json",
        )

    def rehearse_drain(
        self,
        name: str,
        node: str,
        *,
        unmanaged: bool | None = None,
        delete_emptydir: bool | None = None,
    ) -> Evictions:
        """Tell what a drain of a node would move away, and what would block it.

        The cluster is asked for every eviction as a dry run. Nothing is changed.
        """
        return self._request(
            "GET", f"/clusters/{_quote(name)}/nodes/{_quote(node)}/drain",
            query={"unmanaged": unmanaged, "delete_emptydir": delete_emptydir},
            answer="json",
        )

    def rehearse_plan(self, id: str) -> PlanDrains:
        """Tell what the drains of a plan would move away now, and what would block them.

        The cluster is asked for every eviction as a dry run, of the first 20 nodes whose drains have not ended.
        Nothing is changed. A cluster that does not answer is no error: each drain says so.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/drains",
            answer="json",
        )

    def replay_hook_delivery(self, delivery: str) -> HookDelivery:
        """Send an event again under its id."""
        return self._request(
            "POST", f"/hook-deliveries/{_quote(delivery)}/replay",
            answer="json",
        )

    def request_certificate_authority(self, name: str, body: AuthorityRequestQuery) -> AuthorityRequest:
        """Get the request for the certificate of an authority.

        For the type csr. The key is made at the first call and stays in the director, sealed.
        """
        return self._request(
            "POST", f"/certificate-authorities/{_quote(name)}/request",
            body=body, kind="json",
            answer="json",
        )

    def reread_backup_target(self, target: str) -> BackupsReread:
        """Compare the list of backups with what lies in a target.

        Backups that are not on the list come onto it, if this director made them: after it was restored from an older
        bundle, say. Those that are gone from the target get a problem. Nothing is changed in the target, and the
        archives are not read.
        """
        return self._request(
            "POST", f"/backup-targets/{_quote(target)}/reread",
            answer="json",
        )

    def reset_user_password(self, name: str) -> OneTimePassword:
        """Give a user a new one-time password.

        All sessions of the user end. The password is shown this once and must be changed at the next login. The own
        password is refused.
        """
        return self._request(
            "POST", f"/users/{_quote(name)}/reset-password",
            answer="json",
        )

    def resume_campaign(self, id: str) -> Campaign:
        """Let a campaign continue.

        Clusters that have failed no longer count against the stop rule. Clusters of waves that are not over for which
        there was no plan are planned again.
        """
        return self._request(
            "POST", f"/campaigns/{_quote(id)}/resume",
            answer="json",
        )

    def resume_schedule(self, name: str) -> Schedule:
        """Let the slots of a schedule run again.

        What was due while a schedule was suspended is not made up for. A run that works continues.
        """
        return self._request(
            "POST", f"/schedules/{_quote(name)}/resume",
            answer="json",
        )

    def retry_plan(self, id: str, body: PlanRetry, *, idempotency_key: str | None = None) -> Plan:
        """Let a stopped plan continue.

        What failed, parked or was undone runs again, or only the step that is named; finished steps are not repeated.
        The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/retry",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def reveal_hook_secret(self, name: str, body: HookPassword) -> HookKeys:
        """Show the secret that a receiver verifies hmac with.

        It needs the password of who asks, also with a valid token, and is an audit event of its own.
        """
        return self._request(
            "POST", f"/hooks/{_quote(name)}/secret",
            body=body, kind="json",
            answer="json",
        )

    def reveal_notification_secret(self, name: str, body: HookPassword) -> HookKeys:
        """Show the secret that a receiver verifies hmac with.

        It needs the password of who asks, also with a valid token, and is an audit event of its own.
        """
        return self._request(
            "POST", f"/notifications/{_quote(name)}/secret",
            body=body, kind="json",
            answer="json",
        )

    def revoke_kubeconfigs(self, name: str) -> None:
        """End every kubeconfig that was minted for the cluster.

        Those of mint-kubeconfig end at once. Later ones are good.
        """
        return self._request(
            "DELETE", f"/clusters/{_quote(name)}/kubeconfig",
            answer="none",
        )

    def revoke_own_token(self, id: str) -> None:
        """Revoke one of your own API tokens."""
        return self._request(
            "DELETE", f"/tokens/{_quote(id)}",
            answer="none",
        )

    def revoke_user_token(self, name: str, id: str) -> None:
        """Revoke an API token of a user."""
        return self._request(
            "DELETE", f"/users/{_quote(name)}/tokens/{_quote(id)}",
            answer="none",
        )

    def role_user(self, name: str, body: RoleChange) -> User:
        """Give a user another role.

        It counts from the user's next request. The last enabled admin keeps the role.
        """
        return self._request(
            "POST", f"/users/{_quote(name)}/role",
            body=body, kind="json",
            answer="json",
        )

    def roll_back_appliance(self, body: ApplianceRollback) -> Appliance:
        """Start the director of before the last upgrade.

        As an upgrade, with the root that is kept in the other partition. If that director does not know the database,
        the data of before the upgrade is restored, and what has changed since is lost: lose_changes agrees to it.
        """
        return self._request(
            "POST", "/appliance/rollback",
            body=body, kind="json",
            answer="json",
        )

    def rotate_hook_key(self, name: str) -> HookKeys:
        """Make another key for a hook.

        Requests have two signatures for a day: by the new key, and by the former one.
        """
        return self._request(
            "POST", f"/hooks/{_quote(name)}/rotate-key",
            answer="json",
        )

    def rotate_notification_key(self, name: str) -> HookKeys:
        """Make another key for a notification.

        Requests have two signatures for a day: by the new key, and by the former one.
        """
        return self._request(
            "POST", f"/notifications/{_quote(name)}/rotate-key",
            answer="json",
        )

    def run_schedule(self, name: str) -> ScheduleRun:
        """Run the job of a schedule now.

        Outside of its slots, also if it is suspended. The run is the newest of the schedule, at the place in
        Location.
        """
        return self._request(
            "POST", f"/schedules/{_quote(name)}/run",
            answer="json",
        )

    def search_log(
        self,
        id: str,
        *,
        step: str | None = None,
        attempt: int | None = None,
        q: str | None = None,
        failed: bool | None = None,
        from_: int | None = None,
        limit: int | None = None,
    ) -> LogHits:
        """Search the whole log of a step.

        A search ends after about two seconds, or with the limit. Its next says where to continue. A search that found
        nothing may have a next too.
        """
        return self._request(
            "GET", f"/plans/{_quote(id)}/log/search",
            query={"step": step, "attempt": attempt, "q": q, "failed": failed, "from": from_, "limit": limit},
            answer="json",
        )

    def set_credentials(self, name: str, body: CredentialsChange) -> Credentials:
        """Set or change the credentials of providers.

        The password is sealed, and never shown again. Providers that name the credentials take a change up at their
        next login; nothing else changes.
        """
        return self._request(
            "PUT", f"/credentials/{_quote(name)}",
            body=body, kind="json",
            answer="json",
        )

    def skip_campaign(self, id: str, body: CampaignSkip) -> Campaign:
        """Take a cluster out of a campaign.

        A plan of it that runs continues.
        """
        return self._request(
            "POST", f"/campaigns/{_quote(id)}/skip",
            body=body, kind="json",
            answer="json",
        )

    def skip_plan(self, id: str, body: PlanSkip, *, idempotency_key: str | None = None) -> Plan:
        """Let a plan continue without a step.

        The reason is kept in the journal. A step that runs, or is done, cannot be skipped. The answer has no steps
        and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/skip",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def start_plan(self, id: str, body: PlanStart, *, idempotency_key: str | None = None) -> Plan:
        """Start a plan.

        The hash must be the plan's own: it says which plan was read. Conflict says what has moved since it was made.
        The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/start",
            headers={"Idempotency-Key": idempotency_key},
            body=body, kind="json",
            answer="json",
        )

    def summary(self) -> Summary:
        """Count clusters, nodes, plans and waits.

        What of these the asking user may see. Nodes and certificates are counted as they were seen last.
        """
        return self._request(
            "GET", "/summary",
            answer="json",
        )

    def suspend_schedule(self, name: str) -> Schedule:
        """Let no slot of a schedule run.

        What was due while a schedule was suspended is not made up for. A run that works continues.
        """
        return self._request(
            "POST", f"/schedules/{_quote(name)}/suspend",
            answer="json",
        )

    def sync_consul(self, name: str, body: ConsulSync) -> ConsulState:
        """Compare a Consul with what is wanted now, and repair it.

        The director does so by itself every 15 seconds. Removals that are held go if their id is given.
        """
        return self._request(
            "POST", f"/consuls/{_quote(name)}/sync",
            body=body, kind="json",
            answer="json",
        )

    def test_certificate_authority(self, name: str) -> ProviderTest:
        """Test an authority, and have one signed on trial.

        The key of what is signed is forgotten. A server of step-ca issues one certificate.
        """
        return self._request(
            "POST", f"/certificate-authorities/{_quote(name)}/test",
            answer="json",
        )

    def test_consul(self, name: str) -> ProviderTest:
        """Ask a Consul and say what is wrong.

        Each thing is looked at by itself: addresses, certificates, the datacenter, the leader, the token, each right,
        the domain. Nothing is changed.
        """
        return self._request(
            "POST", f"/consuls/{_quote(name)}/test",
            answer="json",
        )

    def test_hook(self, name: str) -> HookDelivery:
        """Send a test event to a hook, once.

        problem in the answer says why it was not received. A test that is received lets the hook be called again
        after its endpoint had answered 410.
        """
        return self._request(
            "POST", f"/hooks/{_quote(name)}/test",
            answer="json",
        )

    def test_identity_provider(self, name: str, *, user: str | None = None) -> ProviderTest:
        """Ask a directory with people and say what is wrong.

        Each stage is looked at by itself, on every server: resolve, connect, tls, bind, search, groups. With a user,
        the person is looked up and the role is named. Nothing is changed.
        """
        return self._request(
            "POST", f"/identity-providers/{_quote(name)}/test",
            query={"user": user},
            answer="json",
        )

    def test_notification(self, name: str) -> NotificationMessage:
        """Send a test, once, also in a quiet time.

        problem in the answer says why it was not received. A test that is received lets messages be sent at once that
        were not received before.
        """
        return self._request(
            "POST", f"/notifications/{_quote(name)}/test",
            answer="json",
        )

    def test_provider(self, name: str) -> ProviderTest:
        """Connect to a provider and say what is wrong.

        Everything that the director needs of the provider is looked at, each thing by itself. Nothing is changed.
        """
        return self._request(
            "POST", f"/providers/{_quote(name)}/test",
            answer="json",
        )

    def undo_plan(self, id: str, *, idempotency_key: str | None = None) -> Plan:
        """Undo what a stopped plan did.

        The last first, as far as its steps can be undone. The answer has no steps and no machines.
        """
        return self._request(
            "POST", f"/plans/{_quote(id)}/undo",
            headers={"Idempotency-Key": idempotency_key},
            answer="json",
        )

    def upgrade_appliance(self, body: ApplianceUpgrade) -> Appliance:
        """Upgrade the appliance in place.

        The root of the upload is written to the other root partition. Running steps of plans end, the database is
        copied, and the VM restarts with the new root, once: if it does not become healthy, the former root and
        database come back by themselves. Plans continue afterwards. A downgrade is refused.
        """
        return self._request(
            "POST", "/appliance/upgrade",
            body=body, kind="json",
            answer="json",
        )

    def verify_audit(self) -> AuditVerification:
        """Verify the audit trail.

        Reads all of the trail that is in the database and says whether it is as it was written, and otherwise which
        entry is the first bad one. One verification runs at a time.
        """
        return self._request(
            "POST", "/audit/verify",
            answer="json",
        )

    def verify_backup(self, backup: str) -> Backup:
        """Read a backup to its end and say what is wrong.

        The archive is read from its target, decrypted and compared with its manifest. Nothing is changed in the
        target. problem in the answer says what is wrong.
        """
        return self._request(
            "POST", f"/backups/{_quote(backup)}/verify",
            answer="json",
        )

    def verify_certificates(self, *, cluster: str | None = None) -> CertificateVerification:
        """Look at certificates now, and say what is wrong with them.

        Nodes are asked over TLS and SSH, and clusters through their API. Nothing is changed on them. One verification
        runs at a time.
        """
        return self._request(
            "POST", "/certificates/verify",
            query={"cluster": cluster},
            answer="json",
        )

    def verify_director_authority(self) -> DirectorAuthority:
        """Ask all nodes what they trust, while the director's authority changes.

        Nodes are asked over SSH. Nothing is changed on them.
        """
        return self._request(
            "POST", "/director-authority/verify",
            answer="json",
        )

    def verify_release(self, name: str) -> Release:
        """Read everything in a bundle and compare it with its release.yaml.

        It changes nothing. The answer comes when all of it was read. A damaged bundle is a problem with every wrong
        place.
        """
        return self._request(
            "POST", f"/releases/{_quote(name)}/verify",
            answer="json",
        )

    def version(self) -> Version:
        """Say what runs."""
        return self._request(
            "GET", "/version",
            token=False,
            answer="json",
        )
