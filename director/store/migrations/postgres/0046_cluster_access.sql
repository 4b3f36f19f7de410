-- How people get into a cluster: which token keys its masters have, and whose kubeconfigs with certificates are good.
CREATE TABLE cluster_access (
    uid              TEXT PRIMARY KEY,
    token_keys       TEXT NOT NULL DEFAULT '', -- digest; '-' if not all masters have the same
    kubeconfig_group TEXT NOT NULL DEFAULT ''
);
