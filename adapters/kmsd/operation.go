package kmsd

import (
	"context"
	"time"
)

// call is one request on its way: what it asks for, and what the audit may say of
// it afterwards. Nothing secret is ever put here.
type call struct {
	operation string
	principal string
	body      []byte
	keys      []string          // ids of the keys concerned
	context   map[string]string // names and values AWS shows in its trail too
}

// decode reads the request.
func (c *call) decode(into any) *problem {
	if err := decodeStrict(c.body, into); err != nil {
		// The decoder's text could quote what was sent.
		return refuse("SerializationException", "The body is no JSON object with the parameters that this server knows for %s", c.operation)
	}
	return nil
}

// handler answers one operation with a value to marshal, nil for an empty answer.
type handler func(*Server, *call) (any, error)

// operations are all that is served. Rights are by principal, see principalRights.
var operations = map[string]handler{
	"CreateKey":           (*Server).createKey,
	"CreateAlias":         (*Server).createAlias,
	"DescribeKey":         (*Server).describeKey,
	"GenerateDataKey":     (*Server).generateDataKey,
	"Decrypt":             (*Server).decrypt,
	"ReEncrypt":           (*Server).reEncrypt,
	"EnableKey":           (*Server).enableKey,
	"DisableKey":          (*Server).disableKey,
	"ScheduleKeyDeletion": (*Server).scheduleKeyDeletion,
	"CancelKeyDeletion":   (*Server).cancelKeyDeletion,
	"Sign":                (*Server).sign,
	"GetPublicKey":        (*Server).getPublicKey,
}

// find gives the key that a request names, in whatever state.
func (s *Server) find(c *call, id string) (key, error) {
	name, p := s.keyName(id)
	if p != nil {
		return key{}, p
	}
	k, ok := s.store.find(name)
	if !ok {
		return key{}, notFound(id)
	}
	c.keys = append(c.keys, k.id)
	return k, nil
}

// usable checks that a key may be used, for what it is made for.
func usable(k key, usage string) error {
	if k.usage() != usage {
		return refuse("InvalidKeyUsageException", "Key %s has the usage %s", k.id, k.usage())
	}
	switch k.state {
	case stateEnabled:
		return nil
	case stateDisabled:
		return disabled(k)
	default:
		return invalidState(&k)
	}
}

func (s *Server) createKey(c *call) (any, error) {
	var r createKeyRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	if r.KeySpec == "" {
		r.KeySpec = specSymmetric
	}
	if len(r.Description) > maximumDescription {
		return nil, validation("A description has at most %d bytes", maximumDescription)
	}
	switch {
	case r.KeySpec == specSymmetric && (r.KeyUsage == "" || r.KeyUsage == usageEncrypt):
	case r.KeySpec == specEd25519 && r.KeyUsage == usageSign:
	default:
		return nil, validation("Served are %s for %s and %s for %s", specSymmetric, usageEncrypt, specEd25519, usageSign)
	}
	k, err := s.store.create(r.KeySpec, r.Description)
	if err != nil {
		return nil, err
	}
	c.keys = append(c.keys, k.id)
	return map[string]any{"KeyMetadata": s.metadata(k)}, nil
}

func (s *Server) createAlias(c *call) (any, error) {
	var r createAliasRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	if !aliasName.MatchString(r.AliasName) {
		return nil, refuse("InvalidAliasNameException", "An alias is alias/ and up to 250 of A-Z a-z 0-9 / _ -")
	}
	id, p := s.keyID(r.TargetKeyID)
	if p != nil {
		return nil, p
	}
	c.keys = append(c.keys, id)
	return nil, s.store.alias(r.AliasName, id)
}

func (s *Server) describeKey(c *call) (any, error) {
	var r keyRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	k, err := s.find(c, r.KeyID)
	if err != nil {
		return nil, err
	}
	return map[string]any{"KeyMetadata": s.metadata(k)}, nil
}

func (s *Server) generateDataKey(c *call) (any, error) {
	var r generateDataKeyRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	if r.KeySpec != "AES_256" {
		return nil, validation("KeySpec must be AES_256")
	}
	if p := checkContext(r.EncryptionContext); p != nil {
		return nil, p
	}
	c.context = r.EncryptionContext
	k, err := s.find(c, r.KeyID)
	if err != nil {
		return nil, err
	}
	if err := usable(k, usageEncrypt); err != nil {
		return nil, err
	}
	plain := randomBytes(dataKeySize)
	blob, err := k.seal(plain, r.EncryptionContext)
	if err != nil {
		return nil, err
	}
	return secretAnswer{KeyID: s.arn("key/" + k.id), CiphertextBlob: blob, Plaintext: plain}, nil
}

// secretAnswer is an answer with a plain key in it; the server overwrites the key
// once it is sent.
type secretAnswer struct {
	KeyID               string `json:"KeyId"`
	CiphertextBlob      []byte `json:",omitempty"`
	Plaintext           []byte
	EncryptionAlgorithm string `json:",omitempty"`
}

func (s *Server) decrypt(c *call) (any, error) {
	var r decryptRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	if p := checkOption("EncryptionAlgorithm", r.EncryptionAlgorithm, specSymmetric); p != nil {
		return nil, p
	}
	k, plain, err := s.open(c, r.KeyID, r.CiphertextBlob, r.EncryptionContext)
	if err != nil {
		return nil, err
	}
	return secretAnswer{KeyID: s.arn("key/" + k.id), Plaintext: plain, EncryptionAlgorithm: specSymmetric}, nil
}

// open decrypts a ciphertext with the key that the caller expects, or without one
// with the key that the ciphertext names.
func (s *Server) open(c *call, id string, blob []byte, bound map[string]string) (key, []byte, error) {
	if p := checkCiphertext(blob); p != nil {
		return key{}, nil, p
	}
	if p := checkContext(bound); p != nil {
		return key{}, nil, p
	}
	c.context = bound
	h, sound := parseHeader(blob)
	if id == "" {
		if !sound {
			return key{}, nil, invalidCiphertext()
		}
		if _, known := s.store.find(h.keyID); !known {
			return key{}, nil, refuse("AccessDeniedException", "The ciphertext refers to a key that does not exist or that you may not use")
		}
		id = h.keyID
	}
	k, err := s.find(c, id)
	if err != nil {
		return key{}, nil, err
	}
	if err := usable(k, usageEncrypt); err != nil {
		return key{}, nil, err
	}
	if sound && h.keyID != k.id {
		if _, known := s.store.find(h.keyID); known {
			return key{}, nil, refuse("IncorrectKeyException", "The ciphertext was made with another key than %s", k.id)
		}
	}
	plain, ok := k.open(blob, bound)
	if !ok {
		return key{}, nil, invalidCiphertext()
	}
	return k, plain, nil
}

func (s *Server) reEncrypt(c *call) (any, error) {
	var r reEncryptRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	for _, p := range []*problem{
		checkOption("SourceEncryptionAlgorithm", r.SourceEncryptionAlgorithm, specSymmetric),
		checkOption("DestinationEncryptionAlgorithm", r.DestinationEncryptionAlgorithm, specSymmetric),
		checkContext(r.DestinationEncryptionContext),
	} {
		if p != nil {
			return nil, p
		}
	}
	to, err := s.find(c, r.DestinationKeyID)
	if err != nil {
		return nil, err
	}
	if err := usable(to, usageEncrypt); err != nil {
		return nil, err
	}
	from, plain, err := s.open(c, r.SourceKeyID, r.CiphertextBlob, r.SourceEncryptionContext)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	blob, err := to.seal(plain, r.DestinationEncryptionContext)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"CiphertextBlob": blob, "KeyId": s.arn("key/" + to.id), "SourceKeyId": s.arn("key/" + from.id),
		"SourceEncryptionAlgorithm": specSymmetric, "DestinationEncryptionAlgorithm": specSymmetric,
	}, nil
}

// change runs one of the operations that move a key from state to state.
func (s *Server) change(c *call, id string, decide func(k key) (stateFile, error)) (key, error) {
	name, p := s.keyID(id)
	if p != nil {
		return key{}, p
	}
	c.keys = append(c.keys, name)
	return s.store.change(name, decide)
}

// toggle enables or disables.
func (s *Server) toggle(c *call, state string) (any, error) {
	var r keyRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	_, err := s.change(c, r.KeyID, func(k key) (stateFile, error) {
		if k.state == statePendingDeletion {
			return stateFile{}, invalidState(&k)
		}
		return stateFile{State: state}, nil
	})
	return nil, err
}

func (s *Server) enableKey(c *call) (any, error) { return s.toggle(c, stateEnabled) }

func (s *Server) disableKey(c *call) (any, error) { return s.toggle(c, stateDisabled) }

func (s *Server) scheduleKeyDeletion(c *call) (any, error) {
	var r scheduleKeyDeletionRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	days := defaultWindow
	if r.PendingWindowInDays != nil {
		days = *r.PendingWindowInDays
	}
	if days < minimumWindow || days > maximumWindow {
		return nil, validation("PendingWindowInDays is %d to %d", minimumWindow, maximumWindow)
	}
	k, err := s.change(c, r.KeyID, func(k key) (stateFile, error) {
		if k.state == statePendingDeletion {
			return stateFile{}, invalidState(&k)
		}
		at := s.store.now().UTC().Truncate(time.Millisecond).Add(time.Duration(days) * 24 * time.Hour)
		return stateFile{State: statePendingDeletion, DeletionAt: at}, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"KeyId": s.arn("key/" + k.id), "DeletionDate": seconds(k.deletionAt), "KeyState": k.state, "PendingWindowInDays": days}, nil
}

// cancelKeyDeletion leaves the key disabled, as AWS does: bringing it back to use is
// a decision of its own.
func (s *Server) cancelKeyDeletion(c *call) (any, error) {
	var r keyRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	k, err := s.change(c, r.KeyID, func(k key) (stateFile, error) {
		if k.state != statePendingDeletion {
			return stateFile{}, invalidState(&k)
		}
		return stateFile{State: stateDisabled}, nil
	})
	if err != nil {
		return nil, err
	}
	s.log.LogAttrs(context.Background(), alarmLevel, "kms key deletion cancelled", keysAttr(c.keys), principalAttr(c.principal))
	return map[string]any{"KeyId": s.arn("key/" + k.id)}, nil
}

func (s *Server) sign(c *call) (any, error) {
	var r signRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	if r.SigningAlgorithm != algorithmEd25519 {
		return nil, validation("SigningAlgorithm must be %s", algorithmEd25519)
	}
	if p := checkOption("MessageType", r.MessageType, "RAW"); p != nil {
		return nil, p
	}
	if len(r.Message) == 0 || len(r.Message) > maximumMessage {
		return nil, validation("A message has 1 to %d bytes", maximumMessage)
	}
	k, err := s.find(c, r.KeyID)
	if err != nil {
		return nil, err
	}
	if err := usable(k, usageSign); err != nil {
		return nil, err
	}
	return map[string]any{"KeyId": s.arn("key/" + k.id), "Signature": k.sign(r.Message), "SigningAlgorithm": algorithmEd25519}, nil
}

func (s *Server) getPublicKey(c *call) (any, error) {
	var r keyRequest
	if p := c.decode(&r); p != nil {
		return nil, p
	}
	k, err := s.find(c, r.KeyID)
	if err != nil {
		return nil, err
	}
	if err := usable(k, usageSign); err != nil {
		return nil, err
	}
	public, err := k.publicKey()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"KeyId": s.arn("key/" + k.id), "PublicKey": public, "KeySpec": k.spec, "KeyUsage": k.usage(), "SigningAlgorithms": []string{algorithmEd25519},
	}, nil
}
