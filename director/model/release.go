package model

// Release is an imported release bundle: everything that a cluster of one Kubernetes version needs.
type Release struct {
	Digest     string `json:"digest,omitempty" doc:"SHA-256 of the release.yaml of an imported bundle, as directorctl release list shows it. Either this or bundle is required." maxLength:"64"`
	Bundle     string `json:"bundle,omitempty" doc:"Directory of an unpacked bundle on the director that was not imported, below one of its bundleDirs; it holds release.yaml." maxLength:"4096"`
	Kubernetes string `json:"kubernetes" doc:"Kubernetes version of the bundle, such as v1.37.2; must agree with release.yaml." required:"true"`
	// Unsigned is what lets a bundle in without a signature.
	Unsigned string `json:"unsigned,omitempty" doc:"Why the bundle is used without a signature, in words. Without them a bundle that is not signed is refused. A signature that is there must be right all the same." maxLength:"200"`
}

// releaseKind is what the model knows of the kind Release.
var releaseKind = kind{
	name:      KindRelease,
	meaning:   "A release bundle on the director: everything that a cluster of one Kubernetes version needs.",
	spec:      func(d *Document) any { return ensure(&d.Release) },
	versioned: true,
	validate: func(v *validator, d *Document) {
		v.release(d.Release)
	},
	columns: [][2]string{{"KUBERNETES", "kubernetes"}, {"BUNDLE", "bundle"}},
	effects: merged(
		of(Planned, "clusters of the release are upgraded to it", "spec.kubernetes"),
		of(Later, "it is the bundle that the next plan reads", "spec.bundle", "spec.digest"),
		of(Later, whyUnsigned, "spec.unsigned"),
	),
}

func (v *validator) release(r *Release) {
	v.match("spec.kubernetes", r.Kubernetes, versionPattern, "a version such as v1.37.2", 20)
	v.bundle(r)
	v.words("spec.unsigned", r.Unsigned)
}

// bundle wants one place where the bundle is.
func (v *validator) bundle(r *Release) {
	v.absolute("spec.bundle", r.Bundle)
	switch {
	case r.Bundle == "" && r.Digest == "":
		v.fail(
			"spec.digest", "import a bundle: directorctl release import FILE; or name a directory in spec.bundle",
			"is missing, and so is spec.bundle",
		)
	case r.Bundle != "" && r.Digest != "":
		v.fail("spec.bundle", "leave one of the two out", "is there, and so is spec.digest")
	case r.Digest != "":
		v.match("spec.digest", r.Digest, sha256Pattern, "64 hexadecimal digits, as directorctl release list shows", 64)
	}
}
