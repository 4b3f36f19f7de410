// Package bundle reads release bundles: directories that hold everything a cluster of one Kubernetes version is made
// from, so that a site without the internet installs from them alone.
//
// A bundle is
//
//	release.yaml   versions, and the SHA-256 and size of everything else
//	release.yaml.minisig   its signature, of a signed bundle
//	bin/           programs for the node image
//	cni/           network plugins for the node image
//	manifests/     what is applied to a cluster, with placeholders
//	images/        an OCI image layout; each manifest is annotated with its name and tag
//
// Open reads release.yaml and is cheap. Verify reads everything. Push copies the images into a registry. Seal writes
// release.yaml for a directory that was filled by hand or by a build.
package bundle
