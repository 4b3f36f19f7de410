// Package pki makes and checks certificates: the director's own TLS, the authorities and keys of a cluster, client
// certificates with the kubeconfigs that carry them, and kubeadm's bootstrap tokens.
//
// Everything is PEM, as the files it ends up in. Private parts are director.Secret, so that they never print; the one
// way to store a cluster's keys is ClusterPKI.Seal. Certificates begin an hour in the past, because the clock of a
// node that has just booted is rarely right.
package pki
