//! The files of a project: read and replaced whole, never through a link that leads out of it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// No file that agents read as instructions or settings is as large as this.
const MAX_BYTES: u64 = 4 << 20;

/// A file of a project, which may not exist.
pub struct ProjectFile {
    /// As `setup` names it.
    pub name: &'static str,
    /// Where it really is, behind links.
    path: PathBuf,
    pub content: Option<Vec<u8>>,
}

impl ProjectFile {
    /// Finds and reads a file below `root`, which has no links in it.
    pub fn read(root: &Path, name: &'static str) -> Result<Self, String> {
        let path = resolve(root, name)?;
        let content = match rota_store::open_regular(&path) {
            Ok(file) => {
                let mut bytes = Vec::new();
                file.take(MAX_BYTES + 1)
                    .read_to_end(&mut bytes)
                    .map_err(|error| format!("{name}: {error}"))?;
                if bytes.len() as u64 > MAX_BYTES {
                    return Err(format!("{name} is larger than {MAX_BYTES} bytes"));
                }
                Some(bytes)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{name}: {error}")),
        };
        Ok(Self { name, path, content })
    }

    /// Replaces the file in one step; `None` deletes it, and the folder that is empty without it.
    pub fn write(&self, root: &Path, content: Option<&[u8]>) -> Result<(), String> {
        let written = match content {
            Some(content) => self.replace(content),
            None => self.delete(root),
        };
        written.map_err(|error| format!("{}: {error}", self.name))
    }

    fn replace(&self, content: &[u8]) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let part = rota_store::part_of(&self.path);
        let written = self.write_part(&part, content);
        if written.is_err() {
            // The error of the write says more than that of the clean-up.
            let _removed = std::fs::remove_file(&part);
        }
        written
    }

    fn write_part(&self, part: &Path, content: &[u8]) -> std::io::Result<()> {
        let mut file = File::options().write(true).create_new(true).open(part)?;
        file.write_all(content)?;
        if let Ok(old) = std::fs::metadata(&self.path) {
            // Only root can keep the owner of another user's file.
            let _owner = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())?;
        }
        rota_store::make_whole(part, &self.path).map_err(std::io::Error::other)
    }

    fn delete(&self, root: &Path) -> std::io::Result<()> {
        std::fs::remove_file(&self.path)?;
        let folder = self.path.parent().filter(|folder| *folder != root);
        match folder.map(std::fs::remove_dir) {
            Some(Err(error)) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(()),
        }
    }
}

/// Where a file is, with the links in its path followed.
fn resolve(root: &Path, name: &str) -> Result<PathBuf, String> {
    let mut path = root.to_owned();
    for part in Path::new(name) {
        path.push(part);
        match path.symlink_metadata() {
            Ok(data) if data.is_symlink() => {
                let target =
                    path.canonicalize().map_err(|error| format!("{name}: a broken link: {error}"))?;
                if !target.starts_with(root) {
                    let target = target.display();
                    return Err(format!(
                        "{name} leads out of the project, to {target}: setup does not write there"
                    ));
                }
                path = target;
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(path)
}
