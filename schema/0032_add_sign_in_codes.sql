-- Codes with which a person signs in on the page of OAuth (wire.md P). The account keeps its key.
ALTER TABLE codes DROP CONSTRAINT codes_purpose_check;
ALTER TABLE codes ADD CONSTRAINT codes_purpose_check CHECK (purpose IN ('register', 'recover', 'rotate', 'sign_in'));
