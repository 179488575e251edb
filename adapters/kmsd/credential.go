package kmsd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Region is the region that requests are signed for.
const Region = "local"

// principalsFile is the name of the file in the key folder that says who may sign requests: one
// line for each principal, with its access key and its public key. Secret keys are in the
// credentials of the principals only.
const principalsFile = "principals"

// formerCredentials is the name of the file in which earlier releases kept the secrets of all
// principals.
const formerCredentials = "credentials"

// The principals. Each has a credentials file of its own, with one profile of its name.
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

// ServerPrincipals are those that a server signs requests as.
func ServerPrincipals() []string { return []string{App, Rotator, SealSigner} }

// accessKeyPrefix begins the access keys of this server. Those of AWS begin otherwise.
const accessKeyPrefix = "BBKE"

// credential is the access key of one principal, and the key that verifies its requests.
type credential struct {
	principal string
	accessKey string
	public    ed25519.PublicKey
}

// Issue makes new credentials for principals of a key folder, which ends their former ones. It
// calls save with the credentials of each, in the form of an AWS shared credentials file with
// one profile, and keeps only the public keys. The folder is made if it is absent; no server may
// use it. Issue removes the file in which earlier releases kept all secrets. Faults:
// kmsd.keys_exposed, kmsd.keys_in_use, kmsd.credentials_damaged, and errors of save.
func Issue(folder string, names []string, save func(principal string, credentials []byte) error) (err error) {
	d, err := openDirectory(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	known, err := readPrincipals(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(principals, name) {
			return fmt.Errorf("there is no principal %q", name)
		}
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return err
		}
		known = slices.DeleteFunc(known, func(c credential) bool { return c.principal == name })
		c := credential{name, accessKeyPrefix + base32.StdEncoding.EncodeToString(randomBytes(10)), public}
		known = append(known, c)
		text := fmt.Appendf(nil, "[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\n", name, c.accessKey, base64.StdEncoding.EncodeToString(private.Seed()))
		err = save(name, text)
		clear(text)
		clear(private)
		if err != nil {
			return err
		}
	}
	var b bytes.Buffer
	for _, c := range known {
		fmt.Fprintf(&b, "%s %s %s\n", c.principal, c.accessKey, base64.StdEncoding.EncodeToString(c.public))
	}
	if err := d.write(principalsFile, b.Bytes()); err != nil {
		return err
	}
	return d.remove(formerCredentials)
}

// IssueTo makes new credentials for the server's principals and writes them to a folder: one
// file each, named like the principal. Faults of Issue, and kmsd.credentials_beside_keys for a
// folder inside the key folder.
func IssueTo(folder, to string) error {
	if err := requireApart(folder, to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, directoryMode); err != nil {
		return fmt.Errorf("make the folder of the credentials: %w", err)
	}
	return Issue(folder, ServerPrincipals(), func(principal string, credentials []byte) error {
		return (&directory{path: to, beforeRename: func() {}}).write(principal, credentials)
	})
}

// IssueBreakGlass makes new credentials for break-glass and writes them to a new file, which may
// lie neither in the key folder nor beside the server's credentials. Faults of IssueTo.
func IssueBreakGlass(folder, file string) error {
	if err := requireApart(folder, file); err != nil {
		return err
	}
	beside, err := credentialFiles(filepath.Dir(file), ServerPrincipals())
	if err != nil {
		return breakGlassUnwritable(err)
	}
	if len(beside) > 0 {
		return besideKeys()
	}
	return Issue(folder, []string{BreakGlass}, func(_ string, credentials []byte) error {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
		if err != nil {
			return breakGlassUnwritable(err)
		}
		_, err = f.Write(credentials)
		return errors.Join(err, f.Sync(), f.Close())
	})
}

func breakGlassUnwritable(cause error) error {
	return fault.New(fault.Invalid, "kmsd.credentials_unwritable", "the file of the break-glass credentials cannot be made; name a new file in a folder that exists").WithCause(cause)
}

// CredentialProblem is something wrong with the credentials of a server.
type CredentialProblem struct{ Detail, Next string }

// InspectCredentials looks for problems of the file, or folder, that a server reads its
// credentials from: other users may read it, it has break-glass rights, a file beside it has them,
// or it lies in the folder of the keys.
func InspectCredentials(path string) (found []CredentialProblem, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	folder, files := filepath.Dir(path), []string{path}
	if info.IsDir() {
		if info.Mode().Perm()&0o077 != 0 {
			found = append(found, CredentialProblem{fmt.Sprintf("the folder %s is open to other users (mode %04o)", path, info.Mode().Perm()), "make it 0700, and make new credentials if another user had access"})
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return found, err
		}
		folder, files = path, nil
		for _, e := range entries {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	for _, file := range files {
		problems, err := inspectFile(file)
		if found = append(found, problems...); err != nil {
			return found, err
		}
	}
	if !info.IsDir() {
		beside, err := credentialFiles(folder, []string{BreakGlass})
		if err != nil && !errors.Is(err, fs.ErrPermission) { // the server cannot list the folder either
			return found, err
		}
		for _, file := range beside {
			if file != filepath.Clean(path) {
				found = append(found, breakGlassProblem(file))
			}
		}
	}
	keys, err := filepath.Glob(filepath.Join(folder, "*.key"))
	if _, statErr := os.Stat(filepath.Join(folder, principalsFile)); statErr == nil || len(keys) > 0 {
		found = append(found, CredentialProblem{folder + " is the folder of the keys too", "make new credentials in a folder of their own with `backbone kmsd credentials --out`"})
	}
	return found, err
}

func inspectFile(file string) (found []CredentialProblem, err error) {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		found = append(found, CredentialProblem{fmt.Sprintf("%s is open to other users (mode %04o)", file, info.Mode().Perm()), "make it 0600, and make new credentials if another user had access"})
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return found, err
	}
	defer clear(content)
	if hasProfile(content, BreakGlass) || filepath.Base(file) == BreakGlass {
		found = append(found, breakGlassProblem(file))
	}
	return found, nil
}

func breakGlassProblem(file string) CredentialProblem {
	return CredentialProblem{file + " has break-glass rights, with which ended keys can be kept", "make new break-glass credentials with `backbone kmsd credentials --break-glass` and keep them away from the server"}
}

func hasProfile(content []byte, principal string) bool {
	return bytes.Contains(content, []byte("["+principal+"]"))
}

// maxCredentialBytes is far more than a file of credentials has. Larger files of a folder are not
// searched for credentials.
const maxCredentialBytes = 64 << 10

// credentialFiles returns the files of a folder with credentials of one of the principals: those
// that have the name of a principal, or a profile of it. A file that the caller may not read is
// judged by its name alone.
func credentialFiles(folder string, principals []string) (found []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		file := filepath.Join(folder, e.Name())
		if slices.Contains(principals, e.Name()) || hasAnyProfile(file, principals) {
			found = append(found, file)
		}
	}
	return found, nil
}

func hasAnyProfile(file string, principals []string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxCredentialBytes {
		return false
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	defer clear(content)
	// Other programs' files may have a section named app too, but no access key.
	return bytes.Contains(content, []byte("aws_access_key_id")) && slices.ContainsFunc(principals, func(p string) bool { return hasProfile(content, p) })
}

func besideKeys() error {
	return fault.New(fault.Invalid, "kmsd.credentials_beside_keys",
		"credentials lie neither in the key folder nor do those of break-glass lie beside the server's; name a place that the server does not read")
}

// requireApart refuses a path in the key folder.
func requireApart(folder, path string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	inside, err := filepath.Rel(folder, path)
	if err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
		return besideKeys()
	}
	return nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

// openCredentials returns the principals by access key.
func openCredentials(d *directory) (map[string]credential, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	const next = "stop this server, run `backbone kmsd credentials --keys %s --out FOLDER`, and set kms.credentials_file of the servers to FOLDER"
	if slices.Contains(names, formerCredentials) {
		return nil, fault.New(fault.FailedPrecondition, "kmsd.credentials_former",
			"the key folder holds the secrets of all principals, as earlier releases made them, and they are not accepted any more; "+next, d.path)
	}
	known, err := readPrincipals(d)
	if err != nil {
		return nil, err
	}
	if len(known) == 0 {
		return nil, fault.New(fault.FailedPrecondition, "kmsd.credentials_missing", "no principal has credentials yet; "+next, d.path)
	}
	out := map[string]credential{}
	for _, c := range known {
		out[c.accessKey] = c
	}
	return out, nil
}

// readPrincipals reads the principals, none if there is no file.
func readPrincipals(d *directory) ([]credential, error) {
	content, err := d.read(principalsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parsePrincipals(content)
}

func parsePrincipals(content []byte) (out []credential, err error) {
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) != 3 || !slices.Contains(principals, words[0]) || !strings.HasPrefix(words[1], accessKeyPrefix) {
			return nil, principalsDamaged()
		}
		public, err := base64.StdEncoding.DecodeString(words[2])
		taken := slices.ContainsFunc(out, func(c credential) bool { return c.principal == words[0] || c.accessKey == words[1] })
		if err != nil || len(public) != ed25519.PublicKeySize || taken {
			return nil, principalsDamaged()
		}
		out = append(out, credential{words[0], words[1], public})
	}
	return out, nil
}

func principalsDamaged() error {
	return fault.New(fault.FailedPrecondition, "kmsd.credentials_damaged",
		"the file %q in the key folder must have one line for each principal: its name, its access key and its public key; restore it, or remove it and run `backbone kmsd credentials`", principalsFile)
}
