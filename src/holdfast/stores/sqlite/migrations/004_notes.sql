-- What completes has no next attempt that could need its notes, and there may be much in them. So they go with the mark on
-- the job's own row, and a completion without any costs no further statement.
CREATE TRIGGER holdfast_jobs_noted AFTER UPDATE OF has_notes ON holdfast_jobs
WHEN NEW.has_notes < OLD.has_notes
BEGIN
    DELETE FROM holdfast_notes WHERE seq = NEW.seq;
END;

UPDATE holdfast_jobs SET has_notes = 0 WHERE state = 'completed' AND seq IN (SELECT seq FROM holdfast_notes);
