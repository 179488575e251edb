package kmsd

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Waiting periods of a deletion, in days. AWS waits 30 unless told; here the
// shortest is the default, since it bounds how long an erased subject's key can
// still be brought back.
const (
	minimumWindow = 7
	maximumWindow = 30
	defaultWindow = 7
)

// store keeps the keys: <id>.<version>.key holds material and is written once,
// <id>.state holds what changes, aliases.json names keys. A key exists if and only
// if its key file does; no other file and no log holds material, so unlinking that
// one file destroys it.
type store struct {
	directory *directory
	now       func() time.Time
	log       *slog.Logger

	mu      sync.RWMutex
	keys    map[string]*key   // by id
	aliases map[string]string // "alias/…" to id
}

// keyFile is the content of <id>.<version>.key.
type keyFile struct {
	ID          string    `json:"id"`
	Version     uint32    `json:"version"`
	Spec        string    `json:"spec"`
	Description string    `json:"description,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	Material    []byte    `json:"material"`
}

// stateFile is the content of <id>.state.
type stateFile struct {
	State      string    `json:"state"`
	DeletionAt time.Time `json:"deletion_at,omitzero"`
}

const aliasFile = "aliases.json"

func keyFileName(id string, version uint32) string { return fmt.Sprintf("%s.%d.key", id, version) }

func stateFileName(id string) string { return id + ".state" }

// openStore reads the keys of a folder and finishes deletions that came due.
func openStore(path string, now func() time.Time, log *slog.Logger) (*store, error) {
	d, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	s := &store{directory: d, now: now, log: log, keys: map[string]*key{}, aliases: map[string]string{}}
	if err := s.load(); err != nil {
		_ = d.close()
		return nil, err
	}
	if err := s.deleteDue(); err != nil {
		_ = d.close()
		return nil, err
	}
	return s, nil
}

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		clear(k.material)
	}
	s.keys, s.aliases = map[string]*key{}, map[string]string{}
	return s.directory.close()
}

func (s *store) load() error {
	names, err := s.directory.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".key") {
			continue
		}
		k, err := s.loadKey(name)
		if err != nil {
			return err
		}
		s.keys[k.id] = k
	}
	for _, name := range names {
		// A state without a key is the rest of a creation that was never answered or of
		// a deletion that was interrupted after its unlink.
		if id, ok := strings.CutSuffix(name, ".state"); ok && s.keys[id] == nil {
			if err := s.directory.remove(name); err != nil {
				return err
			}
		}
	}
	return s.loadAliases(slices.Contains(names, aliasFile))
}

func (s *store) loadKey(name string) (*key, error) {
	damaged := fault.New(fault.FailedPrecondition, "kmsd.key_damaged",
		"%s or its state file is missing, damaged or misnamed; restore both from the backup of the key folder", name)
	content, err := s.directory.read(name)
	if err != nil {
		return nil, err
	}
	var f keyFile
	if err := decodeStrict(content, &f); err != nil {
		return nil, damaged // the cause could quote material
	}
	clear(content)
	if uuid.Validate(f.ID) != nil || name != keyFileName(f.ID, f.Version) || f.Version != keyVersion || len(f.Material) != materialSize || f.Spec != specSymmetric && f.Spec != specEd25519 {
		return nil, damaged
	}
	content, err = s.directory.read(stateFileName(f.ID))
	if err != nil {
		return nil, damaged.WithCause(err)
	}
	var st stateFile
	if err := decodeStrict(content, &st); err != nil {
		return nil, damaged.WithCause(err)
	}
	switch {
	case st.State == statePendingDeletion && !st.DeletionAt.IsZero(), (st.State == stateEnabled || st.State == stateDisabled) && st.DeletionAt.IsZero():
	default:
		return nil, damaged
	}
	return &key{
		id: f.ID, version: f.Version, spec: f.Spec, description: f.Description, createdAt: f.CreatedAt, material: f.Material,
		state: st.State, deletionAt: st.DeletionAt,
	}, nil
}

func (s *store) loadAliases(exists bool) error {
	if !exists {
		return nil
	}
	content, err := s.directory.read(aliasFile)
	if err != nil {
		return err
	}
	if err := decodeStrict(content, &s.aliases); err != nil || s.aliases == nil {
		return fault.New(fault.FailedPrecondition, "kmsd.key_damaged", "%s is damaged; restore it from the backup of the key folder", aliasFile).WithCause(err)
	}
	maps.DeleteFunc(s.aliases, func(_, id string) bool { return s.keys[id] == nil })
	return nil
}

// create makes a key. The state goes first: a key file without one would be a key
// that nobody knows whether to serve.
func (s *store) create(spec, description string) (key, error) {
	k := newKey(spec, description, s.now())
	content, err := json.Marshal(keyFile{ID: k.id, Version: k.version, Spec: k.spec, Description: k.description, CreatedAt: k.createdAt, Material: k.material})
	if err != nil {
		return key{}, err
	}
	defer clear(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writeState(k.id, stateFile{State: k.state}); err != nil {
		return key{}, err
	}
	if err := s.directory.write(keyFileName(k.id, k.version), content); err != nil {
		return key{}, err
	}
	s.keys[k.id] = k
	return *k, nil
}

func (s *store) writeState(id string, st stateFile) error {
	content, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return s.directory.write(stateFileName(id), content)
}

// find gives a copy of a key by its id or alias; a key whose waiting period is over
// does not exist, whether or not its file is gone already.
func (s *store) find(id string) (key, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if target, ok := s.aliases[id]; ok {
		id = target
	}
	k := s.keys[id]
	if k == nil || s.isDue(k) {
		return key{}, false
	}
	return *k, true
}

func (s *store) isDue(k *key) bool {
	return k.state == statePendingDeletion && !s.now().Before(k.deletionAt)
}

// alias names a key; a taken name stays as it is.
func (s *store) alias(name, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if target, taken := s.aliases[name]; taken && s.keys[target] != nil && !s.isDue(s.keys[target]) {
		return alreadyExists(name)
	}
	k := s.keys[id]
	if k == nil || s.isDue(k) {
		return notFound(id)
	}
	if k.state == statePendingDeletion {
		return invalidState(k)
	}
	next := maps.Clone(s.aliases)
	next[name] = id
	return s.replaceAliases(next)
}

func (s *store) replaceAliases(next map[string]string) error {
	content, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := s.directory.write(aliasFile, content); err != nil {
		return err
	}
	s.aliases = next
	return nil
}

// change moves a key to the state that decide names; it is durable before anybody
// sees it.
func (s *store) change(id string, decide func(k key) (stateFile, error)) (key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[id]
	if k == nil || s.isDue(k) {
		return key{}, notFound(id)
	}
	next, err := decide(*k)
	if err != nil {
		return key{}, err
	}
	if err := s.writeState(id, next); err != nil {
		return key{}, err
	}
	changed := *k
	changed.state, changed.deletionAt = next.State, next.DeletionAt
	s.keys[id] = &changed
	return changed, nil
}

// deleteDue destroys the keys whose waiting period is over.
func (s *store) deleteDue() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.keys)) {
		k := s.keys[id]
		if !s.isDue(k) {
			continue
		}
		if err := s.directory.remove(keyFileName(k.id, k.version)); err != nil {
			return err
		}
		delete(s.keys, id)
		// A call that copied the key before may still be reading the material, and it
		// began while the key was served; the collector takes it.
		if err := s.directory.remove(stateFileName(id)); err != nil {
			return err
		}
		next := maps.Clone(s.aliases)
		maps.DeleteFunc(next, func(_, target string) bool { return target == id })
		if len(next) != len(s.aliases) {
			if err := s.replaceAliases(next); err != nil {
				return err
			}
		}
		s.log.Warn("kms key destroyed", "key_id", id, "deletion_at", k.deletionAt)
	}
	return nil
}
