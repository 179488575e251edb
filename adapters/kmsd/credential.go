package kmsd

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Region is the region that requests are signed for.
const Region = "local"

// CredentialsFile is the name of the file with the credentials in the key folder.
// It has the form of an AWS shared credentials file with one profile per principal.
const CredentialsFile = "credentials"

// The principals, which are the profiles of the credentials file.
const (
	App        = "app"        // makes and opens data keys
	Rotator    = "rotator"    // makes keys, re-wraps, schedules deletions
	SealSigner = "signer"     // signs
	BreakGlass = "breakglass" // everything, and alone: enable, disable, cancel a deletion
)

// principalRights lists the operations that each principal may call. BreakGlass may call
// all.
var principalRights = map[string][]string{
	App:        {"GenerateDataKey", "Decrypt"},
	Rotator:    {"CreateKey", "CreateAlias", "DescribeKey", "ReEncrypt", "ScheduleKeyDeletion"},
	SealSigner: {"Sign", "GetPublicKey"},
}

func mayCall(principal, operation string) bool {
	return principal == BreakGlass || slices.Contains(principalRights[principal], operation)
}

var principals = []string{App, Rotator, SealSigner, BreakGlass}

// credential is the access key with which one principal signs requests.
type credential struct {
	principal string
	accessKey string
	secret    string
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

// openCredentials reads the credentials. On the first start it makes them.
func openCredentials(d *directory) (map[string]credential, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, CredentialsFile) {
		var b bytes.Buffer
		for _, principal := range principals {
			fmt.Fprintf(&b, "[%s]\naws_access_key_id = BBKM%s\naws_secret_access_key = %s\n\n", principal,
				base32.StdEncoding.EncodeToString(randomBytes(10)), base64.StdEncoding.EncodeToString(randomBytes(30)))
		}
		if err := d.write(CredentialsFile, b.Bytes()); err != nil {
			return nil, err
		}
	}
	content, err := d.read(CredentialsFile)
	if err != nil {
		return nil, err
	}
	return parseCredentials(content)
}

// parseCredentials returns the credentials by access key.
func parseCredentials(content []byte) (map[string]credential, error) {
	damaged := fault.New(fault.FailedPrecondition, "kmsd.credentials_damaged",
		"the file %q in the key folder must have one section each for %s, every one with an access key of its own and a secret; restore it, or remove it to have new ones made",
		CredentialsFile, strings.Join(principals, ", "))
	sections := map[string]*credential{}
	var current *credential
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			name, ok = strings.CutSuffix(name, "]")
			if !ok || sections[name] != nil || !slices.Contains(principals, name) {
				return nil, damaged
			}
			current = &credential{principal: name}
			sections[name] = current
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || current == nil {
			return nil, damaged
		}
		switch strings.TrimSpace(name) {
		case "aws_access_key_id":
			current.accessKey = strings.TrimSpace(value)
		case "aws_secret_access_key":
			current.secret = strings.TrimSpace(value)
		}
	}
	if lines.Err() != nil || len(sections) != len(principals) {
		return nil, damaged
	}
	out := map[string]credential{}
	for _, c := range sections {
		if _, twice := out[c.accessKey]; twice || c.accessKey == "" || len(c.secret) < 32 {
			return nil, damaged
		}
		out[c.accessKey] = *c
	}
	return out, nil
}
