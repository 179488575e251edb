package witness

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Folder is the state of a witness: its key, and the newest checkpoint of each log. One process uses it at a time.
//
// Faults: witness.folder_unusable (FailedPrecondition) and witness.folder_in_use (Conflict).
type Folder struct {
	path string
	lock *os.File
}

var _ ports.WitnessState = (*Folder)(nil)

const (
	keyFile  = "witness.key"
	lockFile = "witness.lock"
)

// OpenFolder opens a folder and makes it if it is absent, readable by its owner only.
func OpenFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusable(err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusable(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fault.New(fault.Conflict, "witness.folder_in_use", "another process is the witness of this folder; two of them would sign twice").WithCause(err)
	}
	return &Folder{path, lock}, nil
}

// Close lets another process use the folder.
func (f *Folder) Close() error { return f.lock.Close() }

// Key returns the key of the witness, and makes it at first.
func (f *Folder) Key() (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(filepath.Join(f.path, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, unusable(err)
		}
		return key, f.replace(keyFile, []byte(hex.EncodeToString(key.Seed())+"\n"))
	}
	if err != nil {
		return nil, unusable(err)
	}
	seed, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fault.New(fault.FailedPrecondition, "witness.folder_unusable", "the file %s holds no key; restore it from a copy", keyFile)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// OriginName is the name under which checkpoints of a log are kept and read: the SHA-256 of its origin in hex.
func OriginName(origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return hex.EncodeToString(sum[:])
}

// Newest implements ports.WitnessState.
func (f *Folder) Newest(origin string) ([]byte, error) {
	note, err := os.ReadFile(filepath.Join(f.path, OriginName(origin)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return note, unusable(err)
}

// Keep implements ports.WitnessState.
func (f *Folder) Keep(origin string, note []byte) error { return f.replace(OriginName(origin), note) }

// replace replaces a file: it has the former content or the new one, whenever the machine stops.
func (f *Folder) replace(name string, content []byte) error {
	next, err := os.CreateTemp(f.path, ".writing-*")
	if err != nil {
		return unusable(err)
	}
	_, err = next.Write(content)
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), filepath.Join(f.path, name))
	}
	if err != nil {
		_ = os.Remove(next.Name())
		return unusable(err)
	}
	folder, err := os.Open(f.path)
	if err != nil {
		return unusable(err)
	}
	return unusable(errors.Join(folder.Sync(), folder.Close()))
}

func unusable(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "witness.folder_unusable", "the folder of the witness cannot be read or written; check its owner and the disk").WithCause(err)
}
