package kmsd

import (
	"context"
	"time"
)

// call is one request: what it asks for, and what the audit may log of it afterwards. It
// holds no secret but body.
type call struct {
	operation string
	principal string
	body      []byte
	keys      []string          // ids of the keys concerned
	context   map[string]string // names and values that AWS shows in its trail too
}

// handler answers one operation with a value to marshal, nil for an empty answer.
type handler func(*Server, *call) (any, error)

// decoded makes a handler out of a method that takes the decoded request.
func decoded[R any](handle func(*Server, *call, R) (any, error)) handler {
	return func(s *Server, c *call) (any, error) {
		var r R
		if err := decodeStrict(c.body, &r); err != nil {
			// The decoder's text could quote what was sent.
			return nil, refuse("SerializationException", "The body is no JSON object with the parameters that this server knows for %s", c.operation)
		}
		return handle(s, c, r)
	}
}

// operations are all that is served. Rights are by principal, see principalRights.
var operations = map[string]handler{
	"CreateKey":           decoded((*Server).createKey),
	"CreateAlias":         decoded((*Server).createAlias),
	"DescribeKey":         decoded((*Server).describeKey),
	"GenerateDataKey":     decoded((*Server).generateDataKey),
	"Decrypt":             decoded((*Server).decrypt),
	"ReEncrypt":           decoded((*Server).reEncrypt),
	"EnableKey":           decoded((*Server).enableKey),
	"DisableKey":          decoded((*Server).disableKey),
	"ScheduleKeyDeletion": decoded((*Server).scheduleKeyDeletion),
	"CancelKeyDeletion":   decoded((*Server).cancelKeyDeletion),
	"Sign":                decoded((*Server).sign),
	"GetPublicKey":        decoded((*Server).getPublicKey),
}

// findKey returns the key that a request names, in whatever state.
func (s *Server) findKey(c *call, id string) (key, error) {
	name, err := parseKeyName(id)
	if err != nil {
		return key{}, err
	}
	k, ok := s.store.find(name)
	if !ok {
		return key{}, notFound(id)
	}
	c.keys = append(c.keys, k.ID)
	return k, nil
}

// findEnabledKey returns the key that a request names if it is enabled and made for the
// usage.
func (s *Server) findEnabledKey(c *call, id, usage string) (key, error) {
	k, err := s.findKey(c, id)
	switch {
	case err != nil:
		return key{}, err
	case k.usage() != usage:
		return key{}, refuse("InvalidKeyUsageException", "Key %s has the usage %s", k.ID, k.usage())
	case k.State == stateDisabled:
		return key{}, refuse("DisabledException", "Key %s is disabled; enable it first", k.ID)
	case k.State != stateEnabled:
		return key{}, invalidState(k)
	}
	return k, nil
}

func (s *Server) createKey(c *call, r createKeyRequest) (any, error) {
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
	c.keys = append(c.keys, k.ID)
	return map[string]any{"KeyMetadata": describe(k)}, nil
}

func (s *Server) createAlias(c *call, r createAliasRequest) (any, error) {
	if !aliasName.MatchString(r.AliasName) {
		return nil, refuse("InvalidAliasNameException", "An alias is alias/ and up to 250 of A-Z a-z 0-9 / _ -")
	}
	id, err := parseKeyID(r.TargetKeyID)
	if err != nil {
		return nil, err
	}
	c.keys = append(c.keys, id)
	return nil, s.store.addAlias(r.AliasName, id)
}

func (s *Server) describeKey(c *call, r keyRequest) (any, error) {
	k, err := s.findKey(c, r.KeyID)
	if err != nil {
		return nil, err
	}
	return map[string]any{"KeyMetadata": describe(k)}, nil
}

func (s *Server) generateDataKey(c *call, r generateDataKeyRequest) (any, error) {
	if r.KeySpec != "AES_256" {
		return nil, validation("KeySpec must be AES_256")
	}
	if err := checkContext(r.EncryptionContext); err != nil {
		return nil, err
	}
	c.context = r.EncryptionContext
	k, err := s.findEnabledKey(c, r.KeyID, usageEncrypt)
	if err != nil {
		return nil, err
	}
	plain := randomBytes(dataKeySize)
	blob, err := k.seal(plain, r.EncryptionContext)
	if err != nil {
		return nil, err
	}
	return secretAnswer{KeyID: k.arn(), CiphertextBlob: blob, Plaintext: plain}, nil
}

// secretAnswer is an answer that holds a plain key; the server overwrites the key once
// the answer is sent.
type secretAnswer struct {
	KeyID               string `json:"KeyId"`
	CiphertextBlob      []byte `json:",omitempty"`
	Plaintext           []byte
	EncryptionAlgorithm string `json:",omitempty"`
}

func (s *Server) decrypt(c *call, r decryptRequest) (any, error) {
	if err := checkOption("EncryptionAlgorithm", r.EncryptionAlgorithm, specSymmetric); err != nil {
		return nil, err
	}
	k, plain, err := s.open(c, r.KeyID, r.CiphertextBlob, r.EncryptionContext)
	if err != nil {
		return nil, err
	}
	return secretAnswer{KeyID: k.arn(), Plaintext: plain, EncryptionAlgorithm: specSymmetric}, nil
}

// open decrypts a ciphertext with the key that the caller expects. A caller that names
// none gets the key that the ciphertext names.
func (s *Server) open(c *call, id string, blob []byte, bound map[string]string) (key, []byte, error) {
	if len(blob) == 0 || len(blob) > maximumCiphertext {
		return key{}, nil, validation("A ciphertext has 1 to %d bytes", maximumCiphertext)
	}
	if err := checkContext(bound); err != nil {
		return key{}, nil, err
	}
	c.context = bound
	h, valid := parseHeader(blob)
	_, known := s.store.find(h.keyID)
	if id == "" {
		if !valid {
			return key{}, nil, invalidCiphertext()
		}
		if !known {
			return key{}, nil, refuse("AccessDeniedException", "The ciphertext refers to a key that does not exist or that you may not use")
		}
		id = h.keyID
	}
	k, err := s.findEnabledKey(c, id, usageEncrypt)
	if err != nil {
		return key{}, nil, err
	}
	if known && h.keyID != k.ID {
		return key{}, nil, refuse("IncorrectKeyException", "The ciphertext was made with another key than %s", k.ID)
	}
	plain, ok := k.open(blob, bound)
	if !ok {
		return key{}, nil, invalidCiphertext()
	}
	return k, plain, nil
}

func (s *Server) reEncrypt(c *call, r reEncryptRequest) (any, error) {
	for _, err := range []error{
		checkOption("SourceEncryptionAlgorithm", r.SourceEncryptionAlgorithm, specSymmetric),
		checkOption("DestinationEncryptionAlgorithm", r.DestinationEncryptionAlgorithm, specSymmetric),
		checkContext(r.DestinationEncryptionContext),
	} {
		if err != nil {
			return nil, err
		}
	}
	to, err := s.findEnabledKey(c, r.DestinationKeyID, usageEncrypt)
	if err != nil {
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
		"CiphertextBlob": blob, "KeyId": to.arn(), "SourceKeyId": from.arn(),
		"SourceEncryptionAlgorithm": specSymmetric, "DestinationEncryptionAlgorithm": specSymmetric,
	}, nil
}

// changeState moves the key that a request names to the state that decide returns.
func (s *Server) changeState(c *call, id string, decide func(k key) (stateFile, error)) (key, error) {
	name, err := parseKeyID(id)
	if err != nil {
		return key{}, err
	}
	c.keys = append(c.keys, name)
	return s.store.changeState(name, decide)
}

func (s *Server) setState(c *call, r keyRequest, state string) (any, error) {
	_, err := s.changeState(c, r.KeyID, func(k key) (stateFile, error) {
		if k.State == statePendingDeletion {
			return stateFile{}, invalidState(k)
		}
		return stateFile{State: state}, nil
	})
	return nil, err
}

func (s *Server) enableKey(c *call, r keyRequest) (any, error) { return s.setState(c, r, stateEnabled) }

func (s *Server) disableKey(c *call, r keyRequest) (any, error) {
	return s.setState(c, r, stateDisabled)
}

func (s *Server) scheduleKeyDeletion(c *call, r scheduleKeyDeletionRequest) (any, error) {
	days := defaultWindow
	if r.PendingWindowInDays != nil {
		days = *r.PendingWindowInDays
	}
	if days < minimumWindow || days > maximumWindow {
		return nil, validation("PendingWindowInDays is %d to %d", minimumWindow, maximumWindow)
	}
	k, err := s.changeState(c, r.KeyID, func(k key) (stateFile, error) {
		if k.State == statePendingDeletion {
			return stateFile{}, invalidState(k)
		}
		at := s.store.now().UTC().Truncate(time.Millisecond).Add(time.Duration(days) * 24 * time.Hour)
		return stateFile{State: statePendingDeletion, DeletionAt: at}, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"KeyId": k.arn(), "DeletionDate": seconds(k.DeletionAt), "KeyState": k.State, "PendingWindowInDays": days}, nil
}

// cancelKeyDeletion leaves the key disabled, as AWS does: an operator enables it in a
// second call.
func (s *Server) cancelKeyDeletion(c *call, r keyRequest) (any, error) {
	k, err := s.changeState(c, r.KeyID, func(k key) (stateFile, error) {
		if k.State != statePendingDeletion {
			return stateFile{}, invalidState(k)
		}
		return stateFile{State: stateDisabled}, nil
	})
	if err != nil {
		return nil, err
	}
	s.log.LogAttrs(context.Background(), alarmLevel, "kms key deletion cancelled", keysAttr(c.keys), principalAttr(c.principal))
	return map[string]any{"KeyId": k.arn()}, nil
}

func (s *Server) sign(c *call, r signRequest) (any, error) {
	if r.SigningAlgorithm != algorithmEd25519 {
		return nil, validation("SigningAlgorithm must be %s", algorithmEd25519)
	}
	if err := checkOption("MessageType", r.MessageType, "RAW"); err != nil {
		return nil, err
	}
	if len(r.Message) == 0 || len(r.Message) > maximumMessage {
		return nil, validation("A message has 1 to %d bytes", maximumMessage)
	}
	k, err := s.findEnabledKey(c, r.KeyID, usageSign)
	if err != nil {
		return nil, err
	}
	return map[string]any{"KeyId": k.arn(), "Signature": k.sign(r.Message), "SigningAlgorithm": algorithmEd25519}, nil
}

func (s *Server) getPublicKey(c *call, r keyRequest) (any, error) {
	k, err := s.findEnabledKey(c, r.KeyID, usageSign)
	if err != nil {
		return nil, err
	}
	public, err := k.publicKey()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"KeyId": k.arn(), "PublicKey": public, "KeySpec": k.Spec, "KeyUsage": k.usage(), "SigningAlgorithms": []string{algorithmEd25519},
	}, nil
}
