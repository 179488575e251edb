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

// Waiting periods of a deletion, in days. AWS's default is 30. Here the shortest is the
// default, since an operator can restore an erased subject's key until it is over.
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
	if err = s.load(); err == nil {
		err = s.deleteDue()
	}
	if err != nil {
		_ = d.close()
		return nil, err
	}
	return s, nil
}

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		clear(k.Material)
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
		s.keys[k.ID] = k
	}
	for _, name := range names {
		// A crash left a state without a key: in create, whose caller got no answer, or in
		// deleteDue after it unlinked the key.
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
	isPending := st.State == statePendingDeletion
	if isPending == st.DeletionAt.IsZero() || !isPending && st.State != stateEnabled && st.State != stateDisabled {
		return nil, damaged
	}
	return &key{f, st}, nil
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

// create makes a key. It writes the state first: loadKey refuses a key file without one.
func (s *store) create(spec, description string) (key, error) {
	k := newKey(spec, description, s.now())
	content, err := json.Marshal(k.keyFile)
	if err != nil {
		return key{}, err
	}
	defer clear(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writeState(k.ID, k.stateFile); err != nil {
		return key{}, err
	}
	if err := s.directory.write(keyFileName(k.ID, k.Version), content); err != nil {
		return key{}, err
	}
	s.keys[k.ID] = k
	return *k, nil
}

func (s *store) writeState(id string, st stateFile) error {
	content, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return s.directory.write(stateFileName(id), content)
}

// find returns a copy of a key by its id or alias. A key whose waiting period is over
// does not exist, even before deleteDue has removed its file.
func (s *store) find(id string) (key, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if target, ok := s.aliases[id]; ok {
		id = target
	}
	k := s.live(id)
	if k == nil {
		return key{}, false
	}
	return *k, true
}

// live returns the key with an id, nil if there is none or its waiting period is over.
func (s *store) live(id string) *key {
	if k := s.keys[id]; k != nil && !s.isDue(k) {
		return k
	}
	return nil
}

func (s *store) isDue(k *key) bool {
	return k.State == statePendingDeletion && !s.now().Before(k.DeletionAt)
}

// addAlias names a key. An alias that names a key already is refused.
func (s *store) addAlias(name, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live(s.aliases[name]) != nil {
		return refuse("AlreadyExistsException", "An alias with the name %q already exists; choose another one", truncate(name))
	}
	k := s.live(id)
	if k == nil {
		return notFound(id)
	}
	if k.State == statePendingDeletion {
		return invalidState(*k)
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

// changeState moves a key to the state that decide returns. The state is durable before
// any call sees it.
func (s *store) changeState(id string, decide func(k key) (stateFile, error)) (key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.live(id)
	if k == nil {
		return key{}, notFound(id)
	}
	next, err := decide(*k)
	if err != nil {
		return key{}, err
	}
	if err := s.writeState(id, next); err != nil {
		return key{}, err
	}
	changed := key{k.keyFile, next}
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
		if err := s.directory.remove(keyFileName(id, k.Version)); err != nil {
			return err
		}
		delete(s.keys, id)
		// The material is not overwritten: a call that began while the key was served may
		// still be reading it.
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
		s.log.Warn("kms key destroyed", "key_id", id, "deletion_at", k.DeletionAt)
	}
	return nil
}
