package daemon

import (
	"fmt"
	"os"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bucket"
	"github.com/director-kaas/kaas/director/model"
)

// RegistryBucket is where the registry keeps images, instead of a directory in StateDir. Directors that share a
// database may share one.
type RegistryBucket struct {
	URL           string `yaml:"url"`           // address of a server that speaks S3; empty for no bucket
	Bucket        string `yaml:"bucket"`        // its name; it has to be there
	Prefix        string `yaml:"prefix"`        // what the names of all objects begin with; may be empty
	Region        string `yaml:"region"`        // that requests are signed for; us-east-1 if empty
	AccessKey     string `yaml:"accessKey"`     // id of the access key
	SecretKeyFile string `yaml:"secretKeyFile"` // holds the secret of the key, for the director alone
	CAFile        string `yaml:"caFile"`        // certificates that the server's must be from; the machine's if empty
}

// secretKeyBytes is more than any secret of an access key has.
const secretKeyBytes = 4096

func (c Config) checkRegistryBucket(p *problems) {
	b := c.RegistryBucket
	if b.URL == "" {
		if b != (RegistryBucket{}) {
			p.add("registryBucket.url", "such as https://s3.example.org:9000", "is missing")
		}
		return
	}
	*p = append(*p, model.S3Bucket{URL: b.URL, Bucket: b.Bucket, Prefix: b.Prefix, Region: b.region()}.Problems(
		"registryBucket",
	)...)
	if b.AccessKey == "" || strings.TrimSpace(b.AccessKey) != b.AccessKey || len(b.AccessKey) > 255 {
		p.add("registryBucket.accessKey", "the id of the access key", "%q is no id of a key", b.AccessKey)
	}
	if _, err := b.secret(); err != nil {
		p.add(
			"registryBucket.secretKeyFile",
			"the absolute path of a file with the secret of the access key, of mode 0600 and the director's own", "%v",
			err,
		)
	}
	if _, err := certificatesIn(b.CAFile); err != nil {
		p.add("registryBucket.caFile", "the absolute path of a file with certificates in PEM", "%v", err)
	}
}

func (b RegistryBucket) region() string {
	if b.Region == "" {
		return "us-east-1"
	}
	return b.Region
}

// secret reads SecretKeyFile. Errors hold nothing of it.
func (b RegistryBucket) secret() (director.Secret, error) {
	text, err := readSmall(b.SecretKeyFile, secretKeyBytes)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(b.SecretKeyFile)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&others != 0 {
		return "", fmt.Errorf("%s can be read by others (mode %04o)", b.SecretKeyFile, info.Mode().Perm())
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", b.SecretKeyFile)
	}
	return director.Secret(secret), nil
}

// place returns the bucket; nil without one. Errors: invalid for files that cannot be read.
func (b RegistryBucket) place() (*bucket.Place, error) {
	if b.URL == "" {
		return nil, nil
	}
	secret, err := b.secret()
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "daemon.config", "registryBucket.secretKeyFile: %w", err)
	}
	ca, err := certificatesIn(b.CAFile)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "daemon.config", "registryBucket.caFile: %w", err)
	}
	return &bucket.Place{
		URL: b.URL, Bucket: b.Bucket, Prefix: b.Prefix, Region: b.region(), CA: string(ca), Key: b.AccessKey,
		Secret: secret,
	}, nil
}
